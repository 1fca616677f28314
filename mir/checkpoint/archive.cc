#include "mir/checkpoint/archive.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <caffe2/serialize/inline_container.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "mir/base/catch_torch.h"
#include "mir/base/status_macros.h"
#include "mir/checkpoint/atomic_file.h"
#include "mir/checkpoint/input_file.h"
#include "mir/checkpoint/pickle.h"
#include "mir/checkpoint/safetensors.h"
#include "mir/checkpoint/storage_reader.h"
#include "mir/checkpoint/unpickle.h"
#include "mir/checkpoint/zip_file.h"

namespace mir::checkpoint {
namespace {

// What torch.save writes into the zip file beside the pickle and storages.
constexpr absl::string_view kPickle = "data.pkl";
constexpr absl::string_view kByteOrder = "byteorder";
constexpr int kAlignment = 64;

// 0x1950a86a20f9469cfc6c, as the bytes of a Python int; the first pickle of
// the format from before torch 1.6.
constexpr absl::string_view kMagic = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
constexpr int64_t kLegacyVersion = 1001;

// The same status, saying of which file.
absl::Status InFile(const std::string& path, const absl::Status& status) {
  if (status.ok() || absl::StrContains(status.message(), path)) return status;
  return absl::Status(status.code(),
                      absl::StrCat(path, ": ", status.message()));
}

UnpickleOptions PickleOptionsOf(const ReadOptions& options) {
  UnpickleOptions unpickle;
  unpickle.keep_unknown_classes = options.keep_unknown_classes;
  return unpickle;
}

// The folder within the zip file that holds the pickle, with its slash.
absl::StatusOr<std::string> FindFolder(const ZipFile& zip) {
  const std::string& path = zip.file().path();
  std::optional<std::string> folder;
  for (const ZipEntry& entry : zip.entries()) {
    const size_t slash = entry.name.find('/');
    if (slash == std::string::npos || entry.name.substr(slash + 1) != kPickle) {
      continue;
    }
    if (folder.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": is no checkpoint: it holds several ", kPickle));
    }
    folder = entry.name.substr(0, slash + 1);
  }
  if (!folder.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        ": is a zip file, but no checkpoint that torch.save wrote: it "
        "holds no ",
        kPickle));
  }
  if (zip.Find(absl::StrCat(*folder, "constants.pkl")) != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     ": is a TorchScript program, not a checkpoint; save "
                     "module.state_dict() by torch.save"));
  }
  return *folder;
}

absl::StatusOr<Value> ReadZip(InputFile file, const ReadOptions& options) {
  MIR_ASSIGN_OR_RETURN(const ZipFile zip, ZipFile::Open(std::move(file)));
  const std::string& path = zip.file().path();
  MIR_ASSIGN_OR_RETURN(const std::string folder, FindFolder(zip));
  if (const ZipEntry* entry = zip.Find(absl::StrCat(folder, kByteOrder))) {
    MIR_ASSIGN_OR_RETURN(const std::string order,
                         zip.ReadText(*entry, options.check_crc));
    if (order != "little") {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": its numbers have the byte order '",
          absl::Utf8SafeCHexEscape(order), "'; only 'little' is supported"));
    }
  }
  MIR_ASSIGN_OR_RETURN(const std::string pickle,
                       zip.ReadText(*zip.Find(absl::StrCat(folder, kPickle)),
                                    options.check_crc));
  MIR_ASSIGN_OR_RETURN(const ParsedPickle parsed,
                       ParsePickle(pickle, PickleOptionsOf(options)));
  StorageReader storages(zip.file(), options);
  return parsed.Build(
      [&](const StorageRecord& record) -> absl::StatusOr<at::Storage> {
        const std::string name = absl::StrCat(folder, "data/", record.key);
        const ZipEntry* entry = zip.Find(name);
        if (entry == nullptr) {
          return absl::DataLossError(
              absl::StrCat(path, ": lacks the entry '",
                           absl::Utf8SafeCHexEscape(name), "' of a tensor"));
        }
        MIR_RETURN_IF_ERROR(zip.CheckStored(*entry));
        if (entry->size < static_cast<uint64_t>(record.nbytes)) {
          return absl::DataLossError(absl::StrCat(
              path, ": entry '", absl::Utf8SafeCHexEscape(name), "' has ",
              entry->size, " bytes where its tensors need ", record.nbytes));
        }
        MIR_ASSIGN_OR_RETURN(const uint64_t offset, zip.DataOffset(*entry));
        return storages.Load(offset, entry->size,
                             c10::elementSize(record.dtype), [&](void* out) {
                               return zip.Read(*entry, options.check_crc, out);
                             });
      });
}

// Reads the pickles and storages of the old format one after the other.
class LegacyReader {
 public:
  LegacyReader(const InputFile& file, const ReadOptions& options)
      : file_(file), options_(options) {}

  absl::StatusOr<Value> Read() {
    MIR_RETURN_IF_ERROR(ReadHeader());
    MIR_ASSIGN_OR_RETURN(const ParsedPickle parsed, Pickle());
    MIR_RETURN_IF_ERROR(FindStorages(parsed));
    StorageReader storages(file_, options_);
    return parsed.Build([&](const StorageRecord& record)
                            -> absl::StatusOr<at::Storage> {
      const auto found = offsets_.find(record.key);
      if (found == offsets_.end()) {
        return absl::DataLossError(absl::StrCat(
            "lacks the storage '", absl::Utf8SafeCHexEscape(record.key), "'"));
      }
      return storages.Load(found->second, static_cast<uint64_t>(record.nbytes),
                           c10::elementSize(record.dtype));
    });
  }

 private:
  static absl::Status NoCheckpoint(absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("is no checkpoint that torch.save wrote: ", what));
  }
  static absl::Status Truncated() {
    return absl::DataLossError("is damaged or truncated: it ends early");
  }

  absl::Status ReadHeader() {
    unsigned char first = 0;
    MIR_RETURN_IF_ERROR(file_.Read(0, &first, 1));
    if (first != 0x80) return NoCheckpoint("neither a zip file nor a pickle");
    MIR_ASSIGN_OR_RETURN(const Value magic, PlainPickle());
    const Object* number = magic.object();
    if (number == nullptr || number->class_name != "builtins.int" ||
        *number->args.bytes() != kMagic) {
      return NoCheckpoint("a pickle, but of something else");
    }
    MIR_ASSIGN_OR_RETURN(const Value version, PlainPickle());
    if (version.integer() != kLegacyVersion) {
      return NoCheckpoint(
          absl::StrCat("version ", version.Describe(), " of the old format"));
    }
    MIR_ASSIGN_OR_RETURN(const Value system, PlainPickle());
    const Value* little_endian = system.Find("little_endian");
    if (little_endian == nullptr || little_endian->boolean() != true) {
      return absl::InvalidArgumentError(
          "was saved on a machine whose numbers have the big end first");
    }
    return absl::OkStatus();
  }

  // The pickle at `position_`, whose length only reading it tells.
  absl::StatusOr<ParsedPickle> Pickle() {
    std::string bytes;
    for (uint64_t size = 1 << 16;; size *= 2) {
      const uint64_t available = file_.size() - position_;
      size = std::min(size, available);
      const size_t known = bytes.size();
      bytes.resize(size);
      MIR_RETURN_IF_ERROR(
          file_.Read(position_ + known, bytes.data() + known, size - known));
      absl::StatusOr<ParsedPickle> parsed =
          ParsePickle(bytes, PickleOptionsOf(options_));
      if (parsed.ok()) position_ += parsed->size();
      if (!absl::IsOutOfRange(parsed.status())) return parsed;
      if (size == available) return Truncated();
    }
  }

  absl::StatusOr<Value> PlainPickle() {
    MIR_ASSIGN_OR_RETURN(const ParsedPickle parsed, Pickle());
    return parsed.Build(
        [](const StorageRecord&) -> absl::StatusOr<at::Storage> {
          return NoCheckpoint("a tensor where there should be none");
        });
  }

  // After the pickles each storage stands with its count of elements, in the
  // order of a last pickle, the list of their keys.
  absl::Status FindStorages(const ParsedPickle& parsed) {
    absl::flat_hash_map<std::string, const StorageRecord*> records;
    for (const StorageRecord& record : parsed.storages()) {
      records[record.key] = &record;
    }
    MIR_ASSIGN_OR_RETURN(const Value keys, PlainPickle());
    if (keys.kind() != Value::Kind::kList) {
      return NoCheckpoint("no list of its storages");
    }
    for (const Value& key : *keys.items()) {
      const auto found =
          records.find(key.string() == nullptr ? "" : *key.string());
      if (found == records.end()) {
        return NoCheckpoint("storages that no tensor uses");
      }
      const StorageRecord& record = *found->second;
      int64_t count = 0;
      if (file_.size() - position_ < sizeof(count)) return Truncated();
      MIR_RETURN_IF_ERROR(file_.Read(position_, &count, sizeof(count)));
      position_ += sizeof(count);
      const int64_t itemsize =
          static_cast<int64_t>(c10::elementSize(record.dtype));
      if (count != record.nbytes / itemsize) {
        return absl::DataLossError(absl::StrCat(
            "is damaged: its storage '", absl::Utf8SafeCHexEscape(record.key),
            "' has ", count, " elements where its tensors say ",
            record.nbytes / itemsize));
      }
      if (file_.size() - position_ < static_cast<uint64_t>(record.nbytes)) {
        return Truncated();
      }
      offsets_[record.key] = position_;
      position_ += static_cast<uint64_t>(record.nbytes);
    }
    return absl::OkStatus();
  }

  const InputFile& file_;
  const ReadOptions options_;
  uint64_t position_ = 0;
  absl::flat_hash_map<std::string, uint64_t> offsets_;
};

absl::StatusOr<Value> ReadFile(const std::string& path,
                               const ReadOptions& options) {
  MIR_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  if (file.size() == 0) {
    return absl::DataLossError(
        "is empty (0 bytes), perhaps from a save that "
        "was cut off");
  }
  std::string start(std::min<uint64_t>(file.size(), kSafetensorsStart), '\0');
  MIR_RETURN_IF_ERROR(file.Read(0, start.data(), start.size()));
  if (absl::StartsWith(start, "PK\x03\x04")) {
    return ReadZip(std::move(file), options);
  }
  if (BeginsAsSafetensors(start)) {
    MIR_ASSIGN_OR_RETURN(Safetensors content, ReadSafetensors(path, options));
    Dict dict(/*ordered=*/true);
    for (auto& [name, tensor] : content.tensors) {
      // Its names are longer than a Dict's keys may be.
      if (!dict.Set(name, std::move(tensor))) {
        return absl::InvalidArgumentError("a name longer than 64 KiB");
      }
    }
    return Value(std::move(dict));
  }
  return LegacyReader(file, options).Read();
}

// The bytes of a storage on the CPU.
absl::StatusOr<at::Tensor> OnCpu(const Pickled::Record& record) {
  at::Tensor bytes;
  MIR_RETURN_IF_ERROR(CatchTorch([&] {
    bytes = at::empty(
        {0}, at::TensorOptions(record.storage.device()).dtype(at::kByte));
    bytes.set_(record.storage, 0, {record.nbytes}, {1});
    bytes = bytes.cpu();
    return absl::OkStatus();
  }));
  return bytes;
}

absl::Status WriteZip(const Pickled& pickled, AtomicFile* file) {
  absl::Status status;
  // The writer's destructor goes on writing after an error, and may throw: so
  // it is never told of one, and writes into the void from there on.
  caffe2::serialize::PyTorchStreamWriter writer(
      [&](const void* data, size_t size) {
        if (status.ok()) status = file->Write(data, size);
        return size;
      },
      /*compute_crc32=*/true, kAlignment);
  const auto text = [&](absl::string_view name, absl::string_view content) {
    writer.writeRecord(std::string(name), content.data(), content.size());
  };
  // The entries of torch.save, in its order.
  text(kPickle, pickled.bytes);
  text(".format_version", "1");
  text(".storage_alignment", absl::StrCat(kAlignment));
  text(kByteOrder, "little");
  for (size_t key = 0; key < pickled.storages.size() && status.ok(); ++key) {
    MIR_ASSIGN_OR_RETURN(const at::Tensor bytes, OnCpu(pickled.storages[key]));
    writer.writeRecord(absl::StrCat("data/", key), bytes.const_data_ptr(),
                       static_cast<size_t>(bytes.numel()));
  }
  writer.writeEndOfFile();
  return status;
}

}  // namespace

absl::StatusOr<Value> ReadCheckpoint(const std::string& path,
                                     const ReadOptions& options) {
  Value value;
  MIR_RETURN_IF_ERROR(InFile(path, CatchTorch([&] {
                               MIR_ASSIGN_OR_RETURN(value,
                                                    ReadFile(path, options));
                               return absl::OkStatus();
                             })));
  return value;
}

absl::Status WriteCheckpoint(const std::string& path, const Value& value) {
  return InFile(path, CatchTorch([&] {
                  MIR_ASSIGN_OR_RETURN(const Pickled pickled, Pickle(value));
                  MIR_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file,
                                       AtomicFile::Create(path));
                  MIR_RETURN_IF_ERROR(WriteZip(pickled, file.get()));
                  return file->Commit();
                }));
}

}  // namespace mir::checkpoint
