#include "mir/launch/stack_dump.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace mir::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Two threads sleep, one of them deaf to all signals.
[[noreturn]] void Sleep(const Env& env) {
  HandleStackRequests(env);
  std::thread([] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    for (;;) pause();
  }).detach();
  for (;;) pause();
}

TEST(StackDumpTest, AllThreadsAreShownAndTheProcessGoesOn) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/stack.txt");
  unlink(path.c_str());
  int status_pipe[2];
  ASSERT_EQ(pipe(status_pipe), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    Sleep({{"MIR_STACK_FILE", path},
           {"MIR_STATUS_FD", absl::StrCat(status_pipe[1])}});
  }
  close(status_pipe[1]);
  absl::SleepFor(absl::Milliseconds(500));
  std::string told;
  for (int times = 1; times <= 2; ++times) {
    ASSERT_EQ(kill(pid, SIGQUIT), 0);
    char buffer[100];
    const ssize_t got = read(status_pipe[0], buffer, sizeof(buffer));
    ASSERT_GT(got, 0);
    EXPECT_EQ(std::string(buffer, got), "{\"event\":\"stacks\"}\n");
  }
  const std::string text = Contents(path);
  EXPECT_THAT(text, AllOf(HasSubstr(absl::StrCat("stacks of process ", pid)),
                          HasSubstr(absl::StrCat("thread ", pid, ":\n")),
                          HasSubstr("pause"), HasSubstr("libc.so"),
                          HasSubstr("no answer; it is waiting")));
  EXPECT_EQ(waitpid(pid, nullptr, WNOHANG), 0);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  close(status_pipe[0]);
}

}  // namespace
}  // namespace mir::launch
