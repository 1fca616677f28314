#include "mir/checkpoint/crc32.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace mir::checkpoint {
namespace {

TEST(Crc32Test, KnownValues) {
  EXPECT_EQ(Crc32("", 0), 0);
  EXPECT_EQ(Crc32("123456789", 9), 0xcbf43926);  // The usual check value.
  EXPECT_EQ(Crc32Portable("123456789", 9), 0xcbf43926);
  EXPECT_EQ(Crc32(std::string(1024, '\0').data(), 1024), 0xefb5af2e);
}

TEST(Crc32Test, FoldingEqualsTablesAtEveryLengthAndOffset) {
  std::mt19937 random(1);
  std::string bytes(4096, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  for (size_t size = 0; size < 300; ++size) {
    for (size_t offset : {0, 1, 7, 16}) {
      EXPECT_EQ(Crc32(&bytes[offset], size),
                Crc32Portable(&bytes[offset], size))
          << size << " from " << offset;
    }
  }
  EXPECT_EQ(Crc32(bytes.data(), bytes.size()),
            Crc32Portable(bytes.data(), bytes.size()));
}

TEST(Crc32Test, GoesOnFromTheBytesBefore) {
  std::string bytes;
  for (int i = 0; i < 1000; ++i) bytes += static_cast<char>(i * 7);
  const uint32_t whole = Crc32(bytes.data(), bytes.size());
  for (size_t cut : {0, 1, 63, 64, 65, 500, 999, 1000}) {
    const uint32_t first = Crc32(bytes.data(), cut);
    EXPECT_EQ(Crc32(bytes.data() + cut, bytes.size() - cut, first), whole);
  }
}

}  // namespace
}  // namespace mir::checkpoint
