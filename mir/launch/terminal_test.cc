#include "mir/launch/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace mir::launch {
namespace {

TEST(TerminalTest, ATerminalSaysItsWidth) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  winsize size = {};
  size.ws_col = 57;
  ASSERT_EQ(ioctl(terminal, TIOCSWINSZ, &size), 0);
  EXPECT_TRUE(TerminalOf(terminal, {}).is_terminal);
  EXPECT_EQ(TerminalOf(terminal, {}).columns, 57);
  close(terminal);
}

TEST(TerminalTest, AFileIsNone) {
  const int file = open("/dev/null", O_WRONLY);
  EXPECT_FALSE(TerminalOf(file, {}).is_terminal);
  close(file);
}

TEST(TerminalTest, TheRunnerSpeaksForATerminal) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const int saved = dup(1);
  dup2(fds[1], 1);
  const Terminal without = TerminalOf(1, {{"MIR_STDERR_COLUMNS", "75"}});
  const Terminal with = TerminalOf(1, {{"MIR_STDOUT_COLUMNS", "75"}});
  dup2(saved, 1);
  EXPECT_FALSE(without.is_terminal);
  EXPECT_TRUE(with.is_terminal);
  EXPECT_EQ(with.columns, 75);
}

}  // namespace
}  // namespace mir::launch
