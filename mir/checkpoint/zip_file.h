#ifndef MIR_CHECKPOINT_ZIP_FILE_H_
#define MIR_CHECKPOINT_ZIP_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "mir/checkpoint/input_file.h"

namespace mir::checkpoint {

// A file within a zip file.
struct ZipEntry {
  std::string name;
  uint32_t crc = 0;
  uint64_t size = 0;
  uint64_t header = 0;  // Where its local header stands.
  uint64_t limit = 0;   // Where its data must have ended.
  bool stored = true;   // As it is: neither compressed nor encrypted.
};

// Reads zip files (also zip64) as torch.save writes them: every entry stored,
// none overlapping another, nothing before or after. What one such file claims
// cannot need more memory than its size. Thread-safe.
//
// LibTorch's own reader neither checks nor tells the CRC-32.
class ZipFile {
 public:
  // Reads the directory at the end. Errors name the file: DATA_LOSS where it
  // is damaged or truncated.
  static absl::StatusOr<ZipFile> Open(InputFile file);

  const InputFile& file() const { return file_; }
  const std::vector<ZipEntry>& entries() const { return entries_; }
  // The entry of that name; null where there is none.
  const ZipEntry* Find(absl::string_view name) const;

  // INVALID_ARGUMENT, naming file and entry, for one that is not stored. Only
  // of those that are is the size bound by the file's.
  absl::Status CheckStored(const ZipEntry& entry) const;

  // Where the bytes of an entry begin in the file; `entry.size` of them lie
  // within it. Errors as of Read.
  absl::StatusOr<uint64_t> DataOffset(const ZipEntry& entry) const;

  // Reads all of an entry to `out`, which has room for `entry.size` bytes, with
  // as many threads as at::parallel_for has.
  // Errors name file and entry: DATA_LOSS where its local header or, with
  // `check_crc`, its CRC-32 does not fit; those of CheckStored.
  absl::Status Read(const ZipEntry& entry, bool check_crc, void* out) const;
  absl::StatusOr<std::string> ReadText(const ZipEntry& entry,
                                       bool check_crc) const;

 private:
  explicit ZipFile(InputFile file) : file_(std::move(file)) {}
  absl::Status ReadDirectory();
  absl::Status Damaged(absl::string_view what) const;

  InputFile file_;
  std::vector<ZipEntry> entries_;
  absl::flat_hash_map<std::string, size_t> index_;
};

}  // namespace mir::checkpoint

#endif  // MIR_CHECKPOINT_ZIP_FILE_H_
