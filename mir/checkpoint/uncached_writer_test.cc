#include "mir/checkpoint/uncached_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

namespace {

enum class FileSystem { kAsItIs, kWithoutDirect, kFull };
FileSystem file_system = FileSystem::kAsItIs;
int direct_writes = 0;

}  // namespace

// In front of the system's.
extern "C" ssize_t write(int descriptor, const void* data, size_t size) {
  const bool direct = (fcntl(descriptor, F_GETFL) & O_DIRECT) != 0;
  direct_writes += direct ? 1 : 0;
  if (file_system == FileSystem::kWithoutDirect && direct) {
    errno = EINVAL;
    return -1;
  }
  if (file_system == FileSystem::kFull) {
    errno = ENOSPC;
    return -1;
  }
  return syscall(SYS_write, descriptor, data, size);
}

namespace mir::checkpoint {
namespace {

constexpr size_t kMebibyte = size_t{1} << 20;

class UncachedWriterTest : public ::testing::Test {
 protected:
  void SetUp() override { file_system = FileSystem::kAsItIs; }

  static std::string Noise(size_t size) {
    std::mt19937 generator(1);
    std::string noise(size, '\0');
    for (char& byte : noise) byte = static_cast<char>(generator());
    return noise;
  }

  // Writes in pieces whose sizes differ.
  int Save(const std::string& content) {
    const int descriptor =
        open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    EXPECT_GE(descriptor, 0);
    UncachedWriter writer(descriptor);
    size_t done = 0;
    for (size_t piece = 1; done < content.size(); piece = 3 * piece + 1) {
      const size_t size = std::min(piece, content.size() - done);
      if (const int error = writer.Write(content.data() + done, size)) {
        return error;
      }
      done += size;
    }
    return writer.Finish();
  }

  std::string Content() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const std::string path_ = ::testing::TempDir() + "uncached";
};

TEST_F(UncachedWriterTest, WritesAnySize) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4095}, 4 * kMebibyte,
                            4 * kMebibyte + 1, 13 * kMebibyte - 5}) {
    const std::string content = Noise(size);
    EXPECT_EQ(Save(content), 0);
    EXPECT_TRUE(Content() == content) << size;
  }
}

TEST_F(UncachedWriterTest, WritesWhereTheFileSystemCannotPassTheCache) {
  file_system = FileSystem::kWithoutDirect;
  const std::string content = Noise(13 * kMebibyte - 5);
  EXPECT_EQ(Save(content), 0);
  EXPECT_TRUE(Content() == content);
}

TEST_F(UncachedWriterTest, TellsOfAFullDiskInBlocksAndAtTheEnd) {
  file_system = FileSystem::kFull;
  EXPECT_EQ(Save(Noise(13 * kMebibyte)), ENOSPC);
  EXPECT_EQ(Save(Noise(1000)), ENOSPC);
}

TEST_F(UncachedWriterTest, LeavesSmallFilesToTheCache) {
  direct_writes = 0;
  EXPECT_EQ(Save(Noise(kMebibyte)), 0);
  EXPECT_EQ(direct_writes, 0);
}

}  // namespace
}  // namespace mir::checkpoint
