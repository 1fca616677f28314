#include "tools/train/console.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "absl/strings/str_cat.h"

namespace mir::tools {
namespace {

using launch::Stream;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

// What `body` writes to this process's stdout and stderr, in their order.
std::string Written(const std::function<void()>& body) {
  const std::string path = ::testing::TempDir() + "/written";
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  const int saved[2] = {dup(1), dup(2)};
  dup2(file, 1);
  dup2(file, 2);
  body();
  dup2(saved[0], 1);
  dup2(saved[1], 2);
  std::string text(lseek(file, 0, SEEK_END), '\0');
  EXPECT_EQ(pread(file, &text[0], text.size(), 0), text.size());
  for (const int fd : {file, saved[0], saved[1]}) close(fd);
  return text;
}

// As Written, on a terminal of 40 columns.
std::string OnTerminal(const std::function<void()>& body) {
  const int master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
  EXPECT_EQ(grantpt(master), 0);
  EXPECT_EQ(unlockpt(master), 0);
  const int terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
  winsize size = {};
  size.ws_col = 40;
  ioctl(master, TIOCSWINSZ, &size);
  const int saved[2] = {dup(1), dup(2)};
  dup2(terminal, 1);
  dup2(terminal, 2);
  body();
  dup2(saved[0], 1);
  dup2(saved[1], 2);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(master, buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, n);
  }
  for (const int fd : {master, terminal, saved[0], saved[1]}) close(fd);
  return text;
}

Console::Options Showing(bool all) {
  Console::Options options;
  options.ranks.all = all;
  return options;
}

TEST(ConsoleTest, VerbsEndAtTheTwelfthColumn) {
  EXPECT_EQ(Written([] {
              Console console({}, {});
              console.Say("Running", "2 processes");
              console.Error("no data\nhelp: give some");
              console.Warning("slow");
              console.Finish();
            }),
            "     Running 2 processes\n"
            "error: no data\n"
            "help: give some\n"
            "warning: slow\n");
}

TEST(ConsoleTest, WholeLinesWithTheirRank) {
  EXPECT_EQ(Written([] {
              Console console(Showing(/*all=*/true), {});
              console.Output(0, Stream::kStdout, "one\ntw");
              console.Output(1, Stream::kStderr, "other\xff\n");
              console.Output(0, Stream::kStdout, "o\nend");
              console.OutputEnded(0, Stream::kStdout);
              console.OutputEnded(1, Stream::kStderr);
              console.Finish();
            }),
            "[r0] one\n[r1] other\xff\n[r0] two\n[r0] end\n");
}

TEST(ConsoleTest, RanksThatAreNotWantedAreNotShown) {
  EXPECT_EQ(Written([] {
              Console console(Showing(/*all=*/false), {});
              console.Output(1, Stream::kStdout, "no\n");
              console.OutputEnded(1, Stream::kStdout);
              console.Output(0, Stream::kStdout, "yes\n");
              console.Finish();
            }),
            "[r0] yes\n");
}

TEST(ConsoleTest, TimestampsComeFirst) {
  Console::Options options;
  options.timestamps = true;
  EXPECT_THAT(
      Written([&] {
        Console console(options, {});
        console.Output(0, Stream::kStdout, "x\n");
        console.Finish();
      }),
      MatchesRegex("[0-9][0-9]:[0-9][0-9]:[0-9][0-9]\\.[0-9]+ .r0. x\n"));
}

TEST(ConsoleTest, OffATerminalOnlyTheLastStateOfAProgressBarIsShown) {
  EXPECT_EQ(Written([] {
              Console console({}, {});
              console.Output(0, Stream::kStderr, "\r10 %");
              console.Output(0, Stream::kStderr, "\r20 %");
              console.Output(0, Stream::kStderr, "\r100 %\n");
              console.Finish();
            }),
            "[r0] 100 %\n");
}

TEST(ConsoleTest, OnATerminalAProgressBarIsRedrawnInPlace) {
  const std::string text = OnTerminal([] {
    Console console(Showing(/*all=*/true), {{"NO_COLOR", "1"}});
    EXPECT_EQ(console.WorkerColumns(0, Stream::kStdout), 35);
    console.Output(0, Stream::kStderr, "10 %\r");
    console.Flush();
    console.Output(1, Stream::kStdout, "a line\n");
    console.Flush();
    console.Output(0, Stream::kStderr, "\033[K20 %");
    console.Flush();
    console.Output(0, Stream::kStderr, "\r100 %\n");
    console.Finish();
  });
  EXPECT_EQ(text,
            "[r0] 10 %"
            "\r\033[K[r1] a line\r\n"
            "[r0] 10 %"
            "\r\033[K[r0] \033[K20 %"
            "\r\033[K[r0] 100 %\r\n");
}

TEST(ConsoleTest, AProgressBarNeverWraps) {
  const std::string text = OnTerminal([] {
    Console console({}, {{"NO_COLOR", "1"}});
    console.Output(0, Stream::kStderr, std::string(100, 'x') + "\r");
    console.Flush();
  });
  EXPECT_EQ(text, "[r0] " + std::string(34, 'x'));
}

TEST(ConsoleTest, ColorsOnATerminalOnly) {
  const auto say = [](ColorMode color, launch::Env env) {
    Console::Options options;
    options.color = color;
    Console console(options, env);
    console.Say("Running", "x");
    console.Error("y\nhelp: z");
    console.Finish();
  };
  const auto in = [&](ColorMode color, launch::Env env = {}) {
    return [=] { say(color, env); };
  };
  EXPECT_THAT(OnTerminal(in(ColorMode::kAuto)),
              HasSubstr("\033[1;32mRunning\033[0m x"));
  EXPECT_THAT(OnTerminal(in(ColorMode::kAuto)),
              HasSubstr("\033[36mhelp:\033[0m z"));
  EXPECT_THAT(Written(in(ColorMode::kAuto)), Not(HasSubstr("\033")));
  EXPECT_THAT(Written(in(ColorMode::kAlways)),
              HasSubstr("\033[1;31merror:\033[0m y"));
  EXPECT_THAT(OnTerminal(in(ColorMode::kNever)), Not(HasSubstr("\033")));
  EXPECT_THAT(OnTerminal(in(ColorMode::kAuto, {{"NO_COLOR", "1"}})),
              Not(HasSubstr("\033")));
  EXPECT_THAT(OnTerminal(in(ColorMode::kAuto, {{"TERM", "dumb"}})),
              Not(HasSubstr("\033")));
}

TEST(ConsoleTest, AReaderThatStandsStillHoldsUpNothing) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const int saved = dup(1);
  dup2(fds[1], 1);
  {
    Console console({}, {});
    EXPECT_TRUE(console.Takes(0, Stream::kStdout));
    const std::string piece = std::string(999, 'x') + "\n";
    for (int i = 0; i < 2000; ++i) {
      console.Output(0, Stream::kStdout, piece);
      console.Flush();
    }
    EXPECT_FALSE(console.Takes(0, Stream::kStdout));
    EXPECT_TRUE(console.Takes(1, Stream::kStdout));  // It is not shown.
    std::vector<pollfd> waited;
    console.AddPollFds(&waited);
    EXPECT_EQ(waited.size(), 1);
  }
  dup2(saved, 1);
  for (const int fd : {fds[0], fds[1], saved}) close(fd);
}

TEST(ConsoleTest, AReaderThatIsGoneIsNoticed) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const int saved = dup(1);
  const auto old = signal(SIGPIPE, SIG_IGN);
  dup2(fds[1], 1);
  close(fds[1]);
  {
    Console console({}, {});
    console.Output(0, Stream::kStdout, "x\n");
    EXPECT_FALSE(console.OutputGone());
    close(fds[0]);
    console.Finish();
    EXPECT_TRUE(console.OutputGone());
    console.Output(0, Stream::kStdout, "y\n");
    console.Finish();
  }
  dup2(saved, 1);
  close(saved);
  signal(SIGPIPE, old);
}

TEST(WithoutColorsTest, OnlyTextStays) {
  EXPECT_EQ(WithoutColors("\033[1;31merror:\033[0m a [b]"), "error: a [b]");
  EXPECT_EQ(WithoutColors("plain"), "plain");
}

TEST(CutToColumnsTest, CountsWhatIsSeen) {
  EXPECT_EQ(CutToColumns("abcdef", 3), "abc");
  EXPECT_EQ(CutToColumns("ab", 3), "ab");
  EXPECT_EQ(CutToColumns("\033[1mab\033[0mcd", 3), "\033[1mab\033[0mc");
  EXPECT_EQ(CutToColumns("\xc3\xa4\xe2\x82\xac!", 2), "\xc3\xa4\xe2\x82\xac");
}

}  // namespace
}  // namespace mir::tools
