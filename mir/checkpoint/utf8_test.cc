#include "mir/checkpoint/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace mir::checkpoint {
namespace {

TEST(Utf8Test, AcceptsWellFormedText) {
  for (const char* text : {"", "plain", "\xc3\xa9", "\xe2\x82\xac",
                           "\xf0\x9f\xa7\xa0", "\xed\xa0\x80"}) {
    EXPECT_TRUE(IsUtf8(text)) << text;
  }
  EXPECT_TRUE(IsUtf8(std::string(1, '\0')));
}

TEST(Utf8Test, RefusesMalformedText) {
  for (const char* text : {"\x80", "\xc3", "\xc3(", "\xe2\x82", "\xf0\x9f\xa7",
                           "\xff", "\xc0\x80" /* too long a form */,
                           "\xf4\x90\x80\x80" /* too large */, "good\xe9"}) {
    EXPECT_FALSE(IsUtf8(text)) << text;
  }
}

TEST(Utf8Test, Latin1GoesBothWays) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  const std::string utf8 = Utf8FromLatin1(bytes);
  EXPECT_EQ(utf8.size(), 128 + 2 * 128);
  EXPECT_EQ(Latin1FromUtf8(utf8), bytes);
}

TEST(Utf8Test, Latin1RefusesWhatItCannotHold) {
  EXPECT_FALSE(Latin1FromUtf8("\xc4\x80").has_value());  // U+0100
  EXPECT_FALSE(Latin1FromUtf8("\xc3").has_value());
}

}  // namespace
}  // namespace mir::checkpoint
