#include "mir/launch/line_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace mir::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using End = LineSplitter::End;
using Lines = std::vector<std::pair<std::string, End>>;

LineSplitter::Sink Into(Lines* lines) {
  return [lines](absl::string_view text, End end) {
    lines->emplace_back(std::string(text), end);
  };
}

Lines Split(const std::vector<std::string>& pieces, size_t longest = 1 << 16) {
  Lines lines;
  LineSplitter splitter(longest);
  for (const std::string& piece : pieces) splitter.Add(piece, Into(&lines));
  splitter.Finish(Into(&lines));
  return lines;
}

TEST(LineSplitterTest, JoinsPiecesToLines) {
  EXPECT_THAT(
      Split({"one\ntw", "o\n\nth", "ree\n"}),
      ElementsAre(Pair("one", End::kNewline), Pair("two", End::kNewline),
                  Pair("", End::kNewline), Pair("three", End::kNewline)));
}

TEST(LineSplitterTest, ALineWithoutNewlineComesAtTheEnd) {
  EXPECT_THAT(Split({"a\nb", "c"}), ElementsAre(Pair("a", End::kNewline),
                                                Pair("bc", End::kEndOfStream)));
  EXPECT_THAT(Split({}), IsEmpty());
}

TEST(LineSplitterTest, BytesOfAnyEncodingStay) {
  const std::string bytes("\xff\xfe\0\x80", 4);
  EXPECT_THAT(Split({bytes + "\n"}), ElementsAre(Pair(bytes, End::kNewline)));
}

TEST(LineSplitterTest, CarriageReturnsReplace) {
  EXPECT_THAT(Split({"10 %\r20 %\r", "done\n"}),
              ElementsAre(Pair("10 %", End::kCarriageReturn),
                          Pair("20 %", End::kCarriageReturn),
                          Pair("done", End::kNewline)));
  // The CR may also come first.
  EXPECT_THAT(Split({"\r10 %", "\r20 %", "\n"}),
              ElementsAre(Pair("10 %", End::kCarriageReturn),
                          Pair("20 %", End::kNewline)));
  EXPECT_THAT(Split({"10 %\r100 %\r"}),
              ElementsAre(Pair("10 %", End::kCarriageReturn),
                          Pair("100 %", End::kCarriageReturn),
                          Pair("100 %", End::kEndOfStream)));
}

TEST(LineSplitterTest, ACarriageReturnBeforeANewlineBelongsToIt) {
  EXPECT_THAT(Split({"a\r\nb\r\n"}),
              ElementsAre(Pair("a", End::kNewline), Pair("b", End::kNewline)));
  EXPECT_THAT(Split({"a\r", "\nb\n"}),
              ElementsAre(Pair("a", End::kCarriageReturn),
                          Pair("a", End::kNewline), Pair("b", End::kNewline)));
  EXPECT_THAT(Split({"\r\n"}), ElementsAre(Pair("", End::kNewline)));
  EXPECT_THAT(Split({"\r", "\n"}), ElementsAre(Pair("", End::kNewline)));
}

TEST(LineSplitterTest, LongLinesAreCut) {
  EXPECT_THAT(
      Split({"abcdefg\nhij\n"}, /*longest=*/3),
      ElementsAre(Pair("abc", End::kTooLong), Pair("def", End::kTooLong),
                  Pair("g", End::kNewline), Pair("hij", End::kNewline)));
}

TEST(LineSplitterTest, MemoryIsBounded) {
  LineSplitter splitter(100);
  size_t seen = 0;
  const auto count = [&](absl::string_view text, End) { seen += text.size(); };
  const std::string piece(1000, 'x');
  for (int i = 0; i < 100; ++i) {
    splitter.Add(piece, count);
    EXPECT_LE(splitter.Pending().size(), 100);
  }
  splitter.Finish(count);
  EXPECT_EQ(seen, 100000);
}

TEST(LineSplitterTest, PendingIsWhatATerminalWouldShow) {
  Lines lines;
  LineSplitter splitter;
  splitter.Add("one\n", Into(&lines));
  EXPECT_EQ(splitter.Pending(), "");
  splitter.Add("10", Into(&lines));
  EXPECT_EQ(splitter.Pending(), "10");
  splitter.Add(" %\r", Into(&lines));
  EXPECT_EQ(splitter.Pending(), "10 %");
  splitter.Add("20", Into(&lines));
  EXPECT_EQ(splitter.Pending(), "20");
  splitter.Add("\n", Into(&lines));
  EXPECT_EQ(splitter.Pending(), "");
}

// Any way of cutting the stream gives the same lines, but for a CR that ends a
// piece and belongs to a newline.
TEST(LineSplitterTest, PiecesDoNotMatter) {
  const std::string stream = "ab\ncd\r\n\nprogress\rmore\rdone\nx";
  Lines whole;
  for (const auto& line : Split({stream})) {
    if (line.second != End::kCarriageReturn) whole.push_back(line);
  }
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    Lines lines;
    for (const auto& line :
         Split({stream.substr(0, cut), stream.substr(cut)})) {
      if (line.second != End::kCarriageReturn) lines.push_back(line);
    }
    EXPECT_EQ(lines, whole) << cut;
  }
}

}  // namespace
}  // namespace mir::launch
