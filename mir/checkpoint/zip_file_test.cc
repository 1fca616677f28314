#include "mir/checkpoint/zip_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "mir/base/status_macros.h"
#include "mir/checkpoint/crc32.h"
#include "mir/checkpoint/input_file.h"
#include "mir/testing/status_matchers.h"

namespace mir::checkpoint {
namespace {

using ::mir::testing::IsOk;
using ::mir::testing::IsOkAndHolds;
using ::mir::testing::StatusIs;
using ::testing::HasSubstr;

std::string Little(uint64_t number, int byte_count) {
  std::string bytes;
  for (int i = 0; i < byte_count; ++i) {
    bytes += static_cast<char>(number >> (8 * i) & 0xff);
  }
  return bytes;
}

// An entry, with what its records claim.
struct Entry {
  Entry(std::string name, std::string content)
      : name(std::move(name)),
        content(std::move(content)),
        local_name(this->name),
        size(this->content.size()),
        compressed(this->content.size()),
        crc(Crc32(this->content.data(), this->content.size())) {}

  std::string name;
  std::string content;
  std::string local_name;
  uint64_t size;
  uint64_t compressed;
  uint32_t crc;
  int method = 0;
  int flags = 0;
  int64_t shift = 0;  // Of the place that the directory tells.
};

// Writes the entries as a zip file; `zip64` puts sizes and places into the
// fields of that format.
std::string Zip(const std::vector<Entry>& entries, bool zip64 = false,
                const std::string& comment = "") {
  std::string bytes;
  std::string directory;
  for (const Entry& entry : entries) {
    const uint64_t header = bytes.size() + entry.shift;
    absl::StrAppend(&bytes, "PK\x03\x04", Little(20, 2), Little(0, 2),
                    Little(entry.method, 2), Little(0, 4), Little(entry.crc, 4),
                    Little(entry.compressed, 4), Little(entry.size, 4),
                    Little(entry.local_name.size(), 2), Little(5, 2),
                    entry.local_name, "FB\x01", std::string(2, '\0'),
                    entry.content);
    const std::string extra =
        zip64 ? absl::StrCat("xx", Little(2, 2), "yy", Little(1, 2),
                             Little(24, 2), Little(entry.size, 8),
                             Little(entry.compressed, 8), Little(header, 8))
              : "";
    const auto field = [&](uint64_t number) {
      return Little(zip64 ? 0xffffffff : number, 4);
    };
    absl::StrAppend(&directory, "PK\x01\x02", Little(20, 2), Little(20, 2),
                    Little(entry.flags, 2), Little(entry.method, 2),
                    Little(0, 4), Little(entry.crc, 4), field(entry.compressed),
                    field(entry.size), Little(entry.name.size(), 2),
                    Little(extra.size(), 2), Little(0, 10), field(header),
                    entry.name, extra);
  }
  const uint64_t offset = bytes.size();
  absl::StrAppend(&bytes, directory);
  if (zip64) {
    const uint64_t end64 = bytes.size();
    absl::StrAppend(&bytes, "PK\x06\x06", Little(44, 8), Little(0, 12),
                    Little(entries.size(), 8), Little(entries.size(), 8),
                    Little(directory.size(), 8), Little(offset, 8));
    absl::StrAppend(&bytes, "PK\x06\x07", Little(0, 4), Little(end64, 8),
                    Little(1, 4));
  }
  absl::StrAppend(&bytes, "PK\x05\x06", Little(0, 4),
                  Little(zip64 ? 0xffff : entries.size(), 2),
                  Little(zip64 ? 0xffff : entries.size(), 2),
                  Little(zip64 ? 0xffffffff : directory.size(), 4),
                  Little(zip64 ? 0xffffffff : offset, 4),
                  Little(comment.size(), 2), comment);
  return bytes;
}

std::string Path() { return ::testing::TempDir() + "zip_file_test.zip"; }

absl::StatusOr<ZipFile> Open(const std::string& bytes) {
  // Some file systems sync a file that is overwritten.
  std::filesystem::remove(Path());
  std::ofstream(Path(), std::ios::binary) << bytes;
  MIR_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(Path()));
  return ZipFile::Open(std::move(file));
}

// The content of an entry, or the error.
absl::StatusOr<std::string> Read(const std::string& bytes,
                                 const std::string& name,
                                 bool check_crc = true) {
  MIR_ASSIGN_OR_RETURN(const ZipFile zip, Open(bytes));
  const ZipEntry* entry = zip.Find(name);
  if (entry == nullptr) return absl::NotFoundError(name);
  return zip.ReadText(*entry, check_crc);
}

TEST(ZipFileTest, ReadsStoredEntries) {
  const std::vector<Entry> entries = {
      {"a/one", "first"}, {"a/", ""}, {"a/two", std::string(1'000'000, 'x')}};
  for (const bool zip64 : {false, true}) {
    for (const char* comment : {"", "a remark"}) {
      const std::string bytes = Zip(entries, zip64, comment);
      EXPECT_THAT(Read(bytes, "a/one"), IsOkAndHolds(std::string("first")));
      EXPECT_THAT(Read(bytes, "a/two"), IsOkAndHolds(entries[2].content));
      EXPECT_THAT(Read(bytes, "a/three"),
                  StatusIs(absl::StatusCode::kNotFound, "a/three"));
    }
  }
  EXPECT_THAT(Open(Zip({})), IsOk());
}

TEST(ZipFileTest, EveryTruncationIsFound) {
  for (const bool zip64 : {false, true}) {
    const std::string whole = Zip({{"a/one", "first"}, {"a/two", "2"}}, zip64);
    for (size_t size = 0; size < whole.size(); ++size) {
      EXPECT_THAT(Open(whole.substr(0, size)),
                  StatusIs(absl::StatusCode::kDataLoss, HasSubstr(Path())))
          << size << " of " << whole.size();
    }
  }
}

TEST(ZipFileTest, AWrongChecksumIsFoundUnlessAllowed) {
  Entry entry("a/one", "first");
  entry.crc ^= 1;
  EXPECT_THAT(Read(Zip({entry}), "a/one"),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("entry 'a/one' is damaged: its CRC-32")));
  EXPECT_THAT(Read(Zip({entry}), "a/one", /*check_crc=*/false),
              IsOkAndHolds(std::string("first")));
}

TEST(ZipFileTest, RefusesCompressedAndEncryptedEntries) {
  Entry compressed("a/one", "first");
  compressed.method = 8;
  compressed.size = uint64_t{1} << 31;  // Not to be allocated.
  Entry encrypted("a/two", "second");
  encrypted.flags = 1;
  const std::string bytes = Zip({compressed, encrypted});
  for (const char* name : {"a/one", "a/two"}) {
    EXPECT_THAT(Read(bytes, name), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("zip -0")));
  }
}

TEST(ZipFileTest, RefusesWhatDoesNotFitTogether) {
  const auto changed = [](auto change) {
    std::vector<Entry> entries = {{"a/one", "first"}, {"a/two", "second"}};
    change(entries);
    return entries;
  };
  const std::pair<std::vector<Entry>, const char*> cases[] = {
      {changed([](auto& e) { e[1].name = "a/one"; }), "two entries 'a/one'"},
      {changed([](auto& e) { e[1].shift = -41; }), "overlaps"},
      {changed([](auto& e) { e[0].size = e[0].compressed = 1000; }),
       "the place of its entry"},
      {changed([](auto& e) { e[0].size = e[0].compressed = 60; }), "overlaps"},
      {changed([](auto& e) { e[0].size = 4; }), "the place of its entry"},
      {changed([](auto& e) { e[1].shift = 1'000'000; }),
       "the place of its entry"},
  };
  for (const auto& [entries, message] : cases) {
    EXPECT_THAT(Open(Zip(entries)),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(message)));
  }
  // Found when the entry is read.
  const std::vector<Entry> renamed =
      changed([](auto& e) { e[0].local_name = "b/one"; });
  EXPECT_THAT(Read(Zip(renamed), "a/one"),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("the header of entry 'a/one'")));
  const std::vector<Entry> longer =
      changed([](auto& e) { e[1].size = e[1].compressed = 8; });
  EXPECT_FALSE(Read(Zip(longer), "a/two").ok());
}

TEST(ZipFileTest, RefusesADirectoryThatDoesNotFit) {
  const std::string whole = Zip({{"a/one", "first"}});
  const size_t end = whole.size() - 22;
  const std::pair<size_t, std::string> changes[] = {
      {end + 10, Little(2, 2)},           // Entries.
      {end + 12, Little(1000, 4)},        // Size.
      {end + 12, Little(40, 4)},          //
      {end + 16, Little(0xfffffff0, 4)},  // Place.
  };
  for (const auto& [at, bytes] : changes) {
    std::string changed = whole;
    changed.replace(at, bytes.size(), bytes);
    EXPECT_THAT(Open(changed),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("directory")));
  }
  std::string far = Zip({{"a/one", "first"}}, /*zip64=*/true);
  far.replace(far.size() - 22 - 20 + 8, 8, Little(~uint64_t{0} - 10, 8));
  EXPECT_THAT(Open(far), StatusIs(absl::StatusCode::kDataLoss,
                                  HasSubstr("zip64 directory is outside")));
}

}  // namespace
}  // namespace mir::checkpoint
