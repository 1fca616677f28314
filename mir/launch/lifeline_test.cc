#include "mir/launch/lifeline.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace mir::launch {
namespace {

// Starts a process in a group of its own that holds the lifeline and has a
// child. The child's end shows as the end of `grandchild`.
struct Family {
  Family() {
    int line[2];
    int life[2];
    EXPECT_EQ(pipe2(line, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(life, O_CLOEXEC), 0);
    worker = fork();
    if (worker == 0) {
      setpgid(0, 0);
      close(line[1]);
      close(life[0]);
      if (fork() != 0) {
        HoldLifeline({{"MIR_LIFELINE_FD", std::to_string(line[0])}});
      }
      for (;;) pause();
    }
    setpgid(worker, worker);
    close(line[0]);
    close(life[1]);
    lifeline = line[1];
    grandchild = life[0];
  }
  ~Family() {
    kill(-worker, SIGKILL);
    close(grandchild);
  }
  pid_t worker;
  int lifeline;
  int grandchild;
};

TEST(LifelineTest, TheEndOfTheRunnerKillsTheWholeGroup) {
  Family family;
  usleep(50'000);
  EXPECT_EQ(waitpid(family.worker, nullptr, WNOHANG), 0) << "too early";

  close(family.lifeline);

  int status = 0;
  ASSERT_EQ(waitpid(family.worker, &status, 0), family.worker);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  char byte;
  EXPECT_EQ(read(family.grandchild, &byte, 1), 0);  // Waits for its end.
}

TEST(LifelineTest, WithoutAPipeDoesNothing) {
  const std::string file = std::to_string(open("/dev/null", O_RDONLY));
  for (const std::string& fd :
       {std::string(), std::string("x"), std::string("987"), file}) {
    HoldLifeline({{"MIR_LIFELINE_FD", fd}});
  }
  usleep(50'000);
}

}  // namespace
}  // namespace mir::launch
