#ifndef MIR_DATA_BYTE_INPUT_H_
#define MIR_DATA_BYTE_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace mir::data {

// A file's bytes from the first to the last, decompressed if it begins with
// gzip's magic number (several members in a row count as one stream). Not
// thread-safe.
class ByteInput {
 public:
  // NOT_FOUND if there is no such file; INVALID_ARGUMENT for a folder or
  // another special file. Messages name the file.
  static absl::StatusOr<std::unique_ptr<ByteInput>> Open(
      const std::string& path);

  virtual ~ByteInput() = default;

  // Reads `count` bytes, or fewer at the file's end; returns how many.
  // DATA_LOSS where compressed data are damaged or end too early.
  virtual absl::StatusOr<int64_t> Read(void* bytes, int64_t count) = 0;

  // Reads `count` bytes without keeping them; returns as Read.
  absl::StatusOr<int64_t> Skip(int64_t count);

  // An upper bound of how many bytes the file yields, from its length: gzip
  // compresses to no less than 1 byte in 1032.
  virtual int64_t MaxBytes() const = 0;

  // How many bytes the file yields, as far as a look at its end tells: the
  // length, or modulo 2^32 what a compressed file's last member holds.
  virtual absl::StatusOr<int64_t> BytesAtEnd() = 0;

  virtual bool compressed() const = 0;
};

}  // namespace mir::data

#endif  // MIR_DATA_BYTE_INPUT_H_
