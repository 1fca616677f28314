#include "mir/checkpoint/uncached_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace mir::checkpoint {
namespace {

constexpr size_t kBlock = size_t{4} << 20;
constexpr size_t kAlignment = 4096;  // Of memory and place, for O_DIRECT.

// Whether writes go past the cache from now on; false where they cannot.
bool SetDirect(int descriptor, bool direct) {
  const int flags = fcntl(descriptor, F_GETFL);
  return flags >= 0 &&
         fcntl(descriptor, F_SETFL,
               direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0 &&
         direct;
}

// Returns 0 or the error number. `direct` is whether O_DIRECT is set.
int WriteAll(int descriptor, const char* from, size_t size, bool direct) {
  while (size > 0) {
    const ssize_t count = write(descriptor, from, size);
    if (count >= 0) {
      from += count;
      size -= static_cast<size_t>(count);
    } else if (errno == EINVAL && direct) {
      // The file system cannot after all, or the rest is no whole block.
      direct = SetDirect(descriptor, false);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

UncachedWriter::~UncachedWriter() {
  WaitForBlock();
  close(descriptor_);
}

UncachedWriter::Block UncachedWriter::NewBlock() {
  void* const block = std::aligned_alloc(kAlignment, kBlock);
  if (block == nullptr) throw std::bad_alloc();
  return Block(static_cast<char*>(block));
}

int UncachedWriter::Write(const void* data, size_t size) {
  const char* from = static_cast<const char*>(data);
  while (size > 0) {
    if (block_ == nullptr) block_ = NewBlock();
    const size_t count = std::min(size, kBlock - filled_);
    std::memcpy(block_.get() + filled_, from, count);
    from += count;
    size -= count;
    filled_ += count;
    if (filled_ == kBlock) {
      if (const int error = StartBlock()) return error;
    }
  }
  return 0;
}

int UncachedWriter::Finish() {
  if (const int error = WaitForBlock()) return error;
  SetDirect(descriptor_, false);
  const int error = WriteAll(descriptor_, block_.get(),
                             std::exchange(filled_, 0), /*direct=*/false);
  if (error != 0) return error;
  return fsync(descriptor_) == 0 ? 0 : errno;
}

int UncachedWriter::WaitForBlock() {
  return result_.valid() ? result_.get() : 0;
}

int UncachedWriter::StartBlock() {
  if (const int error = WaitForBlock()) return error;
  std::swap(block_, on_its_way_);
  filled_ = 0;
  // On this thread, when it is waited for, where no other can be had.
  result_ = std::async([descriptor = descriptor_, block = on_its_way_.get()] {
    return WriteAll(descriptor, block, kBlock, SetDirect(descriptor, true));
  });
  return 0;
}

}  // namespace mir::checkpoint
