#include "mir/launch/status_line.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "mir/launch/worker_contract.h"
#include "mir/testing/status_matchers.h"

namespace mir::launch {
namespace {

using ::mir::testing::IsOk;
using ::mir::testing::StatusIs;
using ::testing::HasSubstr;
using Event = StatusLine::Event;

// A pipe, both ends open.
struct Pipe {
  Pipe() { EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0); }
  ~Pipe() {
    close(fds[0]);
    if (fds[1] >= 0) close(fds[1]);
  }
  std::string ReadAll() {
    close(fds[1]);
    fds[1] = -1;
    std::string all;
    char buffer[4096];
    for (ssize_t n; (n = read(fds[0], buffer, sizeof(buffer))) > 0;) {
      all.append(buffer, n);
    }
    return all;
  }
  int fds[2];
};

TEST(StatusLineTest, WhatIsWrittenIsParsed) {
  Pipe pipe;
  const StatusWriter writer(Env{{"MIR_STATUS_FD", absl::StrCat(pipe.fds[1])}});
  writer.Hello(3);
  writer.Ready();
  writer.Beat(12, "train");
  writer.Checkpoint("/a \"b\"\n\xff/latest.pth", 13);
  writer.Stacks();
  writer.Bye(75);

  const std::string all = pipe.ReadAll();
  const std::vector<std::string> lines = absl::StrSplit(all, '\n');
  ASSERT_EQ(lines.size(), 7);
  EXPECT_EQ(lines[6], "");

  auto line = ParseStatusLine(lines[0]);
  ASSERT_THAT(line, IsOk());
  EXPECT_EQ(line->event, Event::kHello);
  EXPECT_EQ(line->rank, 3);
  EXPECT_EQ(line->pid, getpid());
  EXPECT_EQ(line->contract, kWorkerContract);
  line = ParseStatusLine(lines[1]);
  ASSERT_THAT(line, IsOk());
  EXPECT_EQ(line->event, Event::kReady);
  line = ParseStatusLine(lines[2]);
  ASSERT_THAT(line, IsOk());
  EXPECT_EQ(line->event, Event::kBeat);
  EXPECT_EQ(line->step, 12);
  EXPECT_EQ(line->phase, "train");
  line = ParseStatusLine(lines[3]);
  ASSERT_THAT(line, IsOk());
  EXPECT_EQ(line->event, Event::kCheckpoint);
  EXPECT_EQ(line->path, "/a \"b\"\n\xef\xbf\xbd/latest.pth");  // U+FFFD.
  EXPECT_EQ(line->step, 13);
  line = ParseStatusLine(lines[4]);
  ASSERT_THAT(line, IsOk());
  EXPECT_EQ(line->event, Event::kStacks);
  line = ParseStatusLine(lines[5]);
  ASSERT_THAT(line, IsOk());
  EXPECT_EQ(line->event, Event::kBye);
  EXPECT_EQ(line->code, 75);
}

TEST(StatusLineTest, OtherLinesAreRefused) {
  for (const char* line :
       {"", "hello", "[]", "{}", R"({"event":"lunch"})", R"({"event":1})",
        R"({"event":"beat"})", R"({"event":"beat","step":"x"})",
        R"({"event":"hello"})", R"({"event":"checkpoint","step":1})",
        R"({"event":"bye"})", R"({"event":"ready"} x)"}) {
    EXPECT_THAT(ParseStatusLine(line),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(absl::StrCat("not a status line: ", line))));
  }
}

TEST(StatusLineTest, FurtherKeysAreIgnored) {
  EXPECT_THAT(ParseStatusLine(R"({"event":"beat","step":1,"mem":2})"), IsOk());
}

TEST(StatusWriterTest, WithoutADescriptorDoesNothing) {
  for (const Env& env :
       {Env{}, Env{{"MIR_STATUS_FD", "x"}}, Env{{"MIR_STATUS_FD", "987"}}}) {
    const StatusWriter writer(env);
    writer.Hello(0);
    writer.Bye(0);
  }
}

TEST(StatusWriterTest, ARunnerThatIsGoneDoesNotKillTheWorker) {
  Pipe pipe;
  const StatusWriter writer(pipe.fds[1]);
  close(pipe.fds[0]);
  writer.Beat(1, "train");  // SIGPIPE would end the test.
  writer.Bye(0);
  pipe.fds[0] = open("/dev/null", O_RDONLY);
}

TEST(StatusWriterTest, BeatsAreDroppedWhereNobodyReads) {
  Pipe pipe;
  const StatusWriter writer(pipe.fds[1]);
  // More than a pipe holds.
  for (int i = 0; i < 5000; ++i) writer.Beat(i, "train");
  const std::string all = pipe.ReadAll();
  EXPECT_LT(all.size(), 1 << 17);
  EXPECT_EQ(all.back(), '\n');  // Whole lines only.
}

}  // namespace
}  // namespace mir::launch
