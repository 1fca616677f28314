#include "mir/launch/process_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace mir::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A child that sleeps, with a handler for SIGQUIT; killed with its owner.
class Child {
 public:
  Child() {
    signal(SIGQUIT, [](int) {});
    pid_ = fork();
    if (pid_ == 0) {
      for (;;) pause();
    }
    signal(SIGQUIT, SIG_DFL);
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

TEST(ProcessStateTest, ItselfRuns) {
  const ProcessState state = ProcessStateOf(getpid());
  EXPECT_EQ(state.code, 'R');
  EXPECT_GT(state.resident_bytes, 100'000);
  EXPECT_EQ(Describe(state), "running");
}

TEST(ProcessStateTest, AStoppedProcessIsSeenToBe) {
  const Child child;
  kill(child.pid(), SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(child.pid(), &status, WUNTRACED), child.pid());
  EXPECT_TRUE(ProcessStateOf(child.pid()).stopped());
  EXPECT_EQ(Describe(ProcessStateOf(child.pid())), "stopped");
  EXPECT_THAT(DescribeThreads(child.pid()),
              AllOf(StartsWith(absl::StrCat("thread ", child.pid(), " ")),
                    HasSubstr(": stopped\n")));
}

TEST(ProcessStateTest, WhoIsNotThereIsGone) {
  EXPECT_EQ(ProcessStateOf(-1).code, 0);
  EXPECT_EQ(Describe(ProcessStateOf(-1)), "gone");
  EXPECT_EQ(DescribeThreads(-1), "");
  EXPECT_FALSE(CatchesSignal(-1, SIGQUIT));
}

TEST(ProcessStateTest, HandlersAreSeen) {
  const Child child;
  EXPECT_TRUE(CatchesSignal(child.pid(), SIGQUIT));
  EXPECT_FALSE(CatchesSignal(child.pid(), SIGUSR2));
}

}  // namespace
}  // namespace mir::launch
