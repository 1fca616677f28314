#include "mir/checkpoint/zip_file.h"

#include <ATen/Parallel.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "mir/base/status_macros.h"
#include "mir/checkpoint/crc32.h"

namespace mir::checkpoint {
namespace {

// Signatures and sizes of the parts, from PKWARE's APPNOTE 6.3.
constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kDirectoryHeader = 0x02014b50;
constexpr uint32_t kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50;
constexpr uint32_t kLocator64 = 0x07064b50;
constexpr size_t kLocalHeaderSize = 30;
constexpr size_t kDirectoryHeaderSize = 46;
constexpr size_t kEndSize = 22;
constexpr size_t kEnd64Size = 56;
constexpr size_t kLocator64Size = 20;
constexpr size_t kMaxComment = 65535;
constexpr uint64_t kIn64 = 0xffffffff;  // "See the zip64 field."

uint64_t Number(absl::string_view bytes, size_t offset, size_t byte_count) {
  uint64_t number = 0;
  for (size_t i = byte_count; i-- > 0;) {
    number = number << 8 | static_cast<unsigned char>(bytes[offset + i]);
  }
  return number;
}
uint64_t U16(absl::string_view bytes, size_t offset) {
  return Number(bytes, offset, 2);
}
uint64_t U32(absl::string_view bytes, size_t offset) {
  return Number(bytes, offset, 4);
}
uint64_t U64(absl::string_view bytes, size_t offset) {
  return Number(bytes, offset, 8);
}

// Replaces those of `fields` that say so by the numbers of the zip64 field in
// `extra`; false where one is not there.
bool ReadZip64(absl::string_view extra, std::vector<uint64_t*> fields) {
  fields.erase(std::remove_if(fields.begin(), fields.end(),
                              [](uint64_t* field) { return *field != kIn64; }),
               fields.end());
  if (fields.empty()) return true;
  while (extra.size() >= 4) {
    const uint64_t size = U16(extra, 2);
    if (size > extra.size() - 4) return false;
    const absl::string_view field = extra.substr(4, size);
    if (U16(extra, 0) == 1) {
      if (field.size() < 8 * fields.size()) return false;
      for (size_t i = 0; i < fields.size(); ++i) *fields[i] = U64(field, 8 * i);
      return true;
    }
    extra.remove_prefix(4 + size);
  }
  return false;
}

}  // namespace

absl::Status ZipFile::Damaged(absl::string_view what) const {
  return absl::DataLossError(
      absl::StrCat(file_.path(), ": is damaged or truncated: ", what));
}

absl::StatusOr<ZipFile> ZipFile::Open(InputFile file) {
  ZipFile zip(std::move(file));
  MIR_RETURN_IF_ERROR(zip.ReadDirectory());
  return zip;
}

absl::Status ZipFile::ReadDirectory() {
  const uint64_t file_size = file_.size();
  std::string tail(std::min<uint64_t>(file_size, kEndSize + kMaxComment), '\0');
  const uint64_t tail_offset = file_size - tail.size();
  MIR_RETURN_IF_ERROR(file_.Read(tail_offset, tail.data(), tail.size()));

  // The end record stands last, but for a comment whose length it tells.
  size_t end = absl::string_view::npos;
  for (size_t at = tail.size() < kEndSize ? 0 : tail.size() - kEndSize + 1;
       at-- > 0;) {
    if (U32(tail, at) == kEnd &&
        U16(tail, at + 20) == tail.size() - at - kEndSize) {
      end = at;
      break;
    }
  }
  if (end == absl::string_view::npos) {
    return Damaged("the zip directory that belongs at its end is missing");
  }
  uint64_t count = U16(tail, end + 10);
  uint64_t size = U32(tail, end + 12);
  uint64_t offset = U32(tail, end + 16);
  uint64_t directory_end = tail_offset + end;
  if (end >= kLocator64Size && U32(tail, end - kLocator64Size) == kLocator64) {
    const uint64_t end64 = U64(tail, end - kLocator64Size + 8);
    std::string record(kEnd64Size, '\0');
    if (end64 > file_size || file_size - end64 < kEnd64Size) {
      return Damaged("its zip64 directory is outside");
    }
    MIR_RETURN_IF_ERROR(file_.Read(end64, record.data(), record.size()));
    if (U32(record, 0) != kEnd64) return Damaged("its zip64 directory");
    count = U64(record, 32);
    size = U64(record, 40);
    offset = U64(record, 48);
    directory_end = end64;
  }
  if (offset > directory_end || size != directory_end - offset ||
      count > size / kDirectoryHeaderSize) {
    return Damaged("its zip directory does not fit");
  }

  std::string directory(size, '\0');
  MIR_RETURN_IF_ERROR(file_.Read(offset, directory.data(), size));
  absl::string_view rest = directory;
  for (uint64_t i = 0; i < count; ++i) {
    if (rest.size() < kDirectoryHeaderSize ||
        U32(rest, 0) != kDirectoryHeader) {
      return Damaged("its zip directory ends early");
    }
    const size_t name_size = U16(rest, 28);
    const size_t extra_size = U16(rest, 30);
    const size_t comment_size = U16(rest, 32);
    const size_t whole =
        kDirectoryHeaderSize + name_size + extra_size + comment_size;
    if (rest.size() < whole) return Damaged("its zip directory ends early");

    ZipEntry entry;
    entry.name = std::string(rest.substr(kDirectoryHeaderSize, name_size));
    entry.crc = static_cast<uint32_t>(U32(rest, 16));
    uint64_t compressed = U32(rest, 20);
    entry.size = U32(rest, 24);
    entry.header = U32(rest, 42);
    if (!ReadZip64(rest.substr(kDirectoryHeaderSize + name_size, extra_size),
                   {&entry.size, &compressed, &entry.header})) {
      return Damaged("a zip64 field");
    }
    const bool encrypted = (U16(rest, 8) & 1) != 0;
    entry.stored = U16(rest, 10) == 0 && !encrypted;
    if ((entry.stored && compressed != entry.size) || entry.header > offset ||
        compressed > offset - entry.header) {
      return Damaged(absl::StrCat("the place of its entry '",
                                  absl::Utf8SafeCHexEscape(entry.name), "'"));
    }
    entry.limit = entry.header + compressed;  // At least; for the order below.
    if (!index_.try_emplace(entry.name, entries_.size()).second) {
      return Damaged(absl::StrCat("it has two entries '",
                                  absl::Utf8SafeCHexEscape(entry.name), "'"));
    }
    entries_.push_back(std::move(entry));
    rest.remove_prefix(whole);
  }
  if (!rest.empty()) return Damaged("its zip directory does not fit");

  // Entries that overlap would multiply the file's size in memory.
  std::vector<ZipEntry*> in_order;
  for (ZipEntry& entry : entries_) in_order.push_back(&entry);
  std::sort(in_order.begin(), in_order.end(),
            [](const ZipEntry* a, const ZipEntry* b) {
              return a->header < b->header;
            });
  for (size_t i = 0; i < in_order.size(); ++i) {
    const uint64_t next =
        i + 1 < in_order.size() ? in_order[i + 1]->header : offset;
    if (in_order[i]->limit > next) {
      return Damaged(absl::StrCat("its entry '",
                                  absl::Utf8SafeCHexEscape(in_order[i]->name),
                                  "' overlaps the next"));
    }
    in_order[i]->limit = next;
  }
  return absl::OkStatus();
}

const ZipEntry* ZipFile::Find(absl::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

absl::Status ZipFile::CheckStored(const ZipEntry& entry) const {
  if (entry.stored) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      file_.path(), ": entry '", absl::Utf8SafeCHexEscape(entry.name),
      "' is compressed or encrypted, which torch.save never does; unpack the "
      "file and pack it with `zip -0`"));
}

absl::StatusOr<uint64_t> ZipFile::DataOffset(const ZipEntry& entry) const {
  MIR_RETURN_IF_ERROR(CheckStored(entry));
  const auto damaged = [&] {
    return Damaged(absl::StrCat("the header of entry '",
                                absl::Utf8SafeCHexEscape(entry.name), "'"));
  };
  if (entry.limit - entry.header < kLocalHeaderSize + entry.name.size()) {
    return damaged();
  }
  std::string header(kLocalHeaderSize + entry.name.size(), '\0');
  MIR_RETURN_IF_ERROR(file_.Read(entry.header, header.data(), header.size()));
  const uint64_t data =
      entry.header + kLocalHeaderSize + U16(header, 26) + U16(header, 28);
  if (U32(header, 0) != kLocalHeader || U16(header, 26) != entry.name.size() ||
      header.substr(kLocalHeaderSize) != entry.name || data > entry.limit ||
      entry.size > entry.limit - data) {
    return damaged();
  }
  return data;
}

absl::Status ZipFile::Read(const ZipEntry& entry, bool check_crc,
                           void* out) const {
  MIR_ASSIGN_OR_RETURN(const uint64_t offset, DataOffset(entry));
  // Checked while still in the processor's cache.
  struct Chunk {
    absl::Status status;
    uint32_t crc = 0;
  };
  constexpr uint64_t kChunk = 1 << 18;
  std::vector<Chunk> chunks((entry.size + kChunk - 1) / kChunk);
  const auto size_of = [&](int64_t chunk) {
    return std::min(entry.size - chunk * kChunk, kChunk);
  };
  at::parallel_for(0, static_cast<int64_t>(chunks.size()), /*grain_size=*/4,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       char* const to = static_cast<char*>(out) + i * kChunk;
                       chunks[i].status =
                           file_.Read(offset + i * kChunk, to, size_of(i));
                       if (!chunks[i].status.ok()) return;
                       if (check_crc) chunks[i].crc = Crc32(to, size_of(i));
                     }
                   });
  uint32_t crc = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(chunks.size()); ++i) {
    MIR_RETURN_IF_ERROR(chunks[i].status);
    crc = static_cast<uint32_t>(
        crc32_combine(crc, chunks[i].crc, static_cast<z_off_t>(size_of(i))));
  }
  if (check_crc && crc != entry.crc) {
    return absl::DataLossError(absl::StrCat(
        file_.path(), ": entry '", absl::Utf8SafeCHexEscape(entry.name),
        "' is damaged: its CRC-32 is ", absl::Hex(crc, absl::kZeroPad8),
        ", the file says ", absl::Hex(entry.crc, absl::kZeroPad8)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ZipFile::ReadText(const ZipEntry& entry,
                                              bool check_crc) const {
  MIR_RETURN_IF_ERROR(CheckStored(entry));
  std::string text(entry.size, '\0');
  MIR_RETURN_IF_ERROR(Read(entry, check_crc, text.data()));
  return text;
}

}  // namespace mir::checkpoint
