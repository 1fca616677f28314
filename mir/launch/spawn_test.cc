#include "mir/launch/spawn.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mir/testing/status_matchers.h"

namespace mir::launch {
namespace {

using ::mir::testing::IsOk;
using ::mir::testing::StatusIs;
using ::testing::HasSubstr;

Command Shell(const std::string& script) {
  Command command;
  command.argv = {"/bin/sh", "-c", script};
  command.env = {{"PATH", "/usr/bin:/bin"}};
  return command;
}

std::string Output(const Command& command) {
  const auto captured = RunAndCapture(command);
  EXPECT_THAT(captured, IsOk());
  return captured.ok() ? captured->output : "";
}

TEST(SpawnTest, PassesArgumentsEnvironmentAndFolderUnchanged) {
  Command command = Shell("printf '<%s>' \"$@\" \"$A\"; pwd");
  command.argv.insert(command.argv.end(), {"sh", "a b", "", "$x"});
  command.env["A"] = "1 = 2\n";
  command.directory = "/usr";
  EXPECT_EQ(Output(command), "<a b><><$x><1 = 2\n>/usr\n");
}

TEST(SpawnTest, TheEnvironmentIsOnlyWhatIsGiven) {
  setenv("MIR_SPAWN_TEST", "x", 1);
  EXPECT_EQ(Output(Shell("echo \"[$MIR_SPAWN_TEST]\"")), "[]\n");
}

TEST(SpawnTest, StandardInputIsEmpty) {
  EXPECT_EQ(Output(Shell("cat; echo end")), "end\n");
}

TEST(SpawnTest, BothOutputsAreCaptured) {
  EXPECT_EQ(Output(Shell("echo a; echo b >&2; echo c")), "a\nb\nc\n");
}

TEST(SpawnTest, OnlyTheEndOfALongOutputIsKept) {
  const std::string output =
      Output(Shell("head -c 5000000 /dev/zero | tr '\\0' x; echo end"));
  EXPECT_LE(output.size(), 2 << 20);
  EXPECT_THAT(output.substr(output.size() - 6), "xxend\n");
}

TEST(SpawnTest, KeptDescriptorsAreOpenAndOthersAreNot) {
  auto kept = MakePipe();
  auto other = MakePipe();
  ASSERT_THAT(kept, IsOk());
  ASSERT_THAT(other, IsOk());
  Command command = Shell(absl::StrCat(
      "[ -e /proc/self/fd/", kept->write.get(), " ] && echo kept; ",
      "[ -e /proc/self/fd/", other->write.get(), " ] || echo closed"));
  command.kept_fds = {kept->write.get()};
  EXPECT_EQ(Output(command), "kept\nclosed\n");
}

TEST(SpawnTest, ReturnsTheWaitStatus) {
  EXPECT_EQ(ExitCodeOfWaitStatus(*RunAndWait(Shell("exit 7"))), 7);
  EXPECT_EQ(ExitCodeOfWaitStatus(*RunAndWait(Shell("kill -SEGV $$"))), 139);
}

TEST(SpawnTest, SignalsAreAsByDefault) {
  sigset_t mask;
  sigset_t before;
  sigfillset(&mask);
  sigprocmask(SIG_BLOCK, &mask, &before);
  const auto old = signal(SIGPIPE, SIG_IGN);
  const std::string output =
      Output(Shell("grep -E 'SigBlk|SigIgn' /proc/self/status"));
  signal(SIGPIPE, old);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  EXPECT_THAT(output, HasSubstr("SigBlk:\t0000000000000000"));
  // Bit 12 is SIGPIPE; others may be ignored where the test was started so.
  const size_t ignored = output.find("SigIgn:\t");
  ASSERT_NE(ignored, std::string::npos);
  EXPECT_EQ(std::stoull(output.substr(ignored + 8), nullptr, 16) & 0x1000, 0);
}

TEST(SpawnTest, AGroupOfItsOwn) {
  auto pipe = MakePipe();
  ASSERT_THAT(pipe, IsOk());
  Command command = Shell("sleep 100 & wait");
  command.stdout_fd = pipe->write.get();
  const auto pid = Spawn(command);
  ASSERT_THAT(pid, IsOk());
  pipe->write.Reset();
  EXPECT_EQ(getpgid(*pid), *pid);
  kill(-*pid, SIGKILL);
  char byte;
  EXPECT_EQ(read(pipe->read.get(), &byte, 1), 0);  // The sleep is gone too.
  waitpid(*pid, nullptr, 0);
}

TEST(SpawnTest, DiesWithItsParent) {
  auto pipe = MakePipe();
  ASSERT_THAT(pipe, IsOk());
  const pid_t runner = fork();
  if (runner == 0) {
    Command command = Shell("exec sleep 100");
    command.stdout_fd = pipe->write.get();
    _exit(Spawn(command).ok() ? 0 : 1);
  }
  pipe->write.Reset();
  char byte;
  EXPECT_EQ(read(pipe->read.get(), &byte, 1), 0);
  int status = 0;
  waitpid(runner, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(SpawnTest, FaultsNameTheProgram) {
  Command command;
  command.argv = {"/nonexistent/worker"};
  EXPECT_THAT(Spawn(command), StatusIs(absl::StatusCode::kNotFound,
                                       HasSubstr("/nonexistent/worker: No "
                                                 "such file or directory")));
  command.argv = {"/usr"};
  EXPECT_THAT(Spawn(command), StatusIs(absl::StatusCode::kPermissionDenied,
                                       HasSubstr("cannot start /usr: ")));
  // No program: neither an executable format nor a #! line.
  const std::string text = ::testing::TempDir() + "/text";
  std::ofstream(text) << "hello";
  chmod(text.c_str(), 0755);
  command.argv = {text};
  EXPECT_THAT(Spawn(command), StatusIs(absl::StatusCode::kPermissionDenied,
                                       HasSubstr("text: Exec format error")));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "left a process behind";
}

}  // namespace
}  // namespace mir::launch
