#include "mir/data/byte_input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "mir/base/status_macros.h"

namespace mir::data {
namespace {

constexpr int64_t kChunk = 1 << 16;
constexpr int64_t kMaxDeflateRatio = 1032;

absl::Status SystemError(const std::string& path) {
  return absl::ErrnoToStatus(errno, path);
}

// A file's bytes as they are.
class PlainInput : public ByteInput {
 public:
  PlainInput(std::string path, int file, int64_t length)
      : path_(std::move(path)), file_(file), length_(length) {}
  ~PlainInput() override { close(file_); }

  absl::StatusOr<int64_t> Read(void* bytes, int64_t count) override {
    int64_t total = 0;
    while (total < count) {
      const ssize_t got = pread(file_, static_cast<char*>(bytes) + total,
                                count - total, position_);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return SystemError(path_);
      if (got == 0) break;
      total += got;
      position_ += got;
    }
    return total;
  }

  absl::StatusOr<int64_t> ReadLast(void* bytes, int64_t count) {
    const int64_t position =
        std::exchange(position_, std::max<int64_t>(0, length_ - count));
    absl::StatusOr<int64_t> got = Read(bytes, count);
    position_ = position;
    return got;
  }

  int64_t MaxBytes() const override { return length_; }
  absl::StatusOr<int64_t> BytesAtEnd() override { return length_; }
  bool compressed() const override { return false; }
  const std::string& path() const { return path_; }
  void Rewind() { position_ = 0; }

 private:
  const std::string path_;
  const int file_;
  const int64_t length_;
  int64_t position_ = 0;
};

// What gzip compressed.
class GzipInput : public ByteInput {
 public:
  explicit GzipInput(std::unique_ptr<PlainInput> file)
      : file_(std::move(file)), compressed_(kChunk) {
    initialized_ = inflateInit2(&stream_, /*gzip with a 32 kB window*/ 15 + 16);
  }
  ~GzipInput() override {
    if (initialized_ == Z_OK) inflateEnd(&stream_);
  }

  absl::StatusOr<int64_t> Read(void* bytes, int64_t count) override {
    if (initialized_ != Z_OK) {
      return absl::ResourceExhaustedError("no memory to decompress");
    }
    Bytef* const begin = static_cast<Bytef*>(bytes);
    int64_t total = 0;
    while (total < count && !at_end_) {
      const int64_t wanted = std::min<int64_t>(count - total, 1 << 30);
      stream_.next_out = begin + total;
      stream_.avail_out = static_cast<uInt>(wanted);
      MIR_RETURN_IF_ERROR(Inflate());
      const int64_t got = wanted - stream_.avail_out;
      total += got;
      produced_ += got;
    }
    return total;
  }

  int64_t MaxBytes() const override {
    const int64_t length = file_->MaxBytes();
    return length > std::numeric_limits<int64_t>::max() / kMaxDeflateRatio
               ? std::numeric_limits<int64_t>::max()
               : length * kMaxDeflateRatio;
  }

  absl::StatusOr<int64_t> BytesAtEnd() override {
    unsigned char bytes[4] = {};
    MIR_RETURN_IF_ERROR(file_->ReadLast(bytes, 4).status());
    return bytes[0] | bytes[1] << 8 | bytes[2] << 16 |
           static_cast<int64_t>(bytes[3]) << 24;
  }

  bool compressed() const override { return true; }

 private:
  // Decompresses until the output is full, the data end, or a chunk is used.
  absl::Status Inflate() {
    out_before_ = stream_.avail_out;
    if (stream_.avail_in == 0) {
      MIR_ASSIGN_OR_RETURN(const int64_t got,
                           file_->Read(compressed_.data(), kChunk));
      if (got == 0) {
        if (between_members_) {
          at_end_ = true;
          return absl::OkStatus();
        }
        return absl::DataLossError(absl::StrCat(
            file_->path(), " is cut short: its compressed data end after ",
            file_->MaxBytes(), " bytes, which hold ",
            produced_ + PendingBytes(), " bytes and no end mark"));
      }
      stream_.next_in = compressed_.data();
      stream_.avail_in = static_cast<uInt>(got);
    }
    if (between_members_) {
      // What follows a member and is none is padding, as gzip sees it.
      if (stream_.next_in[0] != 0x1F) {
        at_end_ = true;
        return absl::OkStatus();
      }
      between_members_ = false;
    }
    const int result = inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      between_members_ = true;
      inflateReset(&stream_);
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      return absl::DataLossError(absl::StrCat(
          file_->path(), " is damaged: its compressed data are wrong (",
          stream_.msg == nullptr ? "zlib cannot read them" : stream_.msg,
          ") after ", produced_ + PendingBytes(), " good bytes"));
    }
    return absl::OkStatus();
  }

  int64_t PendingBytes() const {
    return static_cast<int64_t>(out_before_) - stream_.avail_out;
  }

  const std::unique_ptr<PlainInput> file_;
  std::vector<Bytef> compressed_;
  z_stream stream_ = {};
  int initialized_;
  bool between_members_ = false;
  bool at_end_ = false;
  int64_t produced_ = 0;
  uInt out_before_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ByteInput>> ByteInput::Open(
    const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      return absl::NotFoundError(absl::StrCat(path, ": no such file"));
    }
    return SystemError(path);
  }
  struct stat info = {};
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(file);
    return absl::InvalidArgumentError(absl::StrCat(
        path, S_ISDIR(info.st_mode) ? " is a folder" : " is no plain file",
        "; wanted a NIfTI file"));
  }
  auto plain = std::make_unique<PlainInput>(path, file, info.st_size);
  unsigned char magic[2] = {};
  MIR_ASSIGN_OR_RETURN(const int64_t got, plain->Read(magic, 2));
  plain->Rewind();
  if (got == 2 && magic[0] == 0x1F && magic[1] == 0x8B) {
    return std::make_unique<GzipInput>(std::move(plain));
  }
  return plain;
}

absl::StatusOr<int64_t> ByteInput::Skip(int64_t count) {
  std::vector<char> bytes(std::min(count, kChunk));
  int64_t total = 0;
  while (total < count) {
    const int64_t wanted = std::min(count - total, kChunk);
    MIR_ASSIGN_OR_RETURN(const int64_t got, Read(bytes.data(), wanted));
    total += got;
    if (got < wanted) break;
  }
  return total;
}

}  // namespace mir::data
