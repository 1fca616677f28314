#ifndef MIR_CHECKPOINT_INPUT_FILE_H_
#define MIR_CHECKPOINT_INPUT_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace mir::checkpoint {

// A regular file open for reading at any position. Thread-safe.
class InputFile {
 public:
  // Errors name the file: NOT_FOUND, PERMISSION_DENIED and so on as the system
  // says; INVALID_ARGUMENT for a folder or anything else that is no file.
  static absl::StatusOr<InputFile> Open(const std::string& path);

  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }  // When it was opened.

  // Reads `size` bytes from `offset` on. Errors name the file: OUT_OF_RANGE
  // where it ends before, else what the system says.
  absl::Status Read(uint64_t offset, void* out, size_t size) const;

  // The whole file, which is not empty, in memory that is read from the disk
  // when it is used. Writing there changes this mapping alone. It stays when
  // the file is closed.
  absl::StatusOr<std::shared_ptr<char>> Map() const;

 private:
  InputFile(std::string path, int descriptor, uint64_t size);

  std::string path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

}  // namespace mir::checkpoint

#endif  // MIR_CHECKPOINT_INPUT_FILE_H_
