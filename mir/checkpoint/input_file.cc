#include "mir/checkpoint/input_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace mir::checkpoint {

InputFile::InputFile(std::string path, int descriptor, uint64_t size)
    : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  // Not blocking: opening a named pipe would wait for its writer.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be opened"));
  }
  InputFile file(path, descriptor, 0);
  struct stat info {};
  if (fstat(descriptor, &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be read"));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, S_ISDIR(info.st_mode) ? ": is a folder; name a file in it"
                                    : ": is no regular file"));
  }
  file.size_ = static_cast<uint64_t>(info.st_size);
  return file;
}

absl::Status InputFile::Read(uint64_t offset, void* out, size_t size) const {
  // Linux reads at most 2 GiB at once.
  constexpr size_t kAtOnce = size_t{1} << 30;
  char* to = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t count = pread(descriptor_, to, std::min(size, kAtOnce),
                                static_cast<off_t>(offset));
    if (count < 0) {
      if (errno == EINTR) continue;
      return absl::ErrnoToStatus(errno,
                                 absl::StrCat(path_, ": cannot be read"));
    }
    if (count == 0) {
      return absl::OutOfRangeError(
          absl::StrCat(path_, ": ends at byte ", offset));
    }
    to += count;
    offset += static_cast<uint64_t>(count);
    size -= static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<char>> InputFile::Map() const {
  // Pages that are only read need no memory of their own, so none is reserved.
  void* const start = mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_NORESERVE, descriptor_, 0);
  if (start == MAP_FAILED) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat(path_, ": cannot be mapped into memory"));
  }
  return std::shared_ptr<char>(
      static_cast<char*>(start),
      [size = size_](char* mapping) { munmap(mapping, size); });
}

}  // namespace mir::checkpoint
