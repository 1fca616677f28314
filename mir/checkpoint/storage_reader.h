#ifndef MIR_CHECKPOINT_STORAGE_READER_H_
#define MIR_CHECKPOINT_STORAGE_READER_H_

#include <c10/core/Storage.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "mir/checkpoint/input_file.h"
#include "mir/checkpoint/read_options.h"

namespace mir::checkpoint {

// Makes storages of pieces of one file: read, mapped or without data, and on
// the device that `options` asks for. Not thread-safe. The storages outlive
// reader and file.
class StorageReader {
 public:
  // `file` must outlive the reader.
  StorageReader(const InputFile& file, const ReadOptions& options)
      : file_(file), options_(options) {}

  // The `size` bytes from `offset` on, which lie within the file and begin with
  // an element of `itemsize` bytes. Where they are read rather than mapped,
  // `read` does it, else InputFile::Read.
  absl::StatusOr<at::Storage> Load(
      uint64_t offset, uint64_t size, size_t itemsize,
      const std::function<absl::Status(void* out)>& read = nullptr);

 private:
  const InputFile& file_;
  const ReadOptions options_;
  std::shared_ptr<char> mapping_;  // Of the whole file, from the first use on.
};

}  // namespace mir::checkpoint

#endif  // MIR_CHECKPOINT_STORAGE_READER_H_
