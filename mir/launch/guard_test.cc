#include "mir/launch/guard.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/status/statusor.h"
#include "mir/launch/spawn.h"
#include "mir/testing/status_matchers.h"

namespace mir::launch {
namespace {

using ::mir::testing::IsOk;

// A shell in a group of its own, with a child; `end` closes with both.
absl::StatusOr<pid_t> Sleepers(const Pipe& end) {
  Command command;
  command.argv = {"/bin/sh", "-c", "sleep 100 & wait"};
  command.env = {{"PATH", "/usr/bin:/bin"}};
  command.kept_fds = {end.write.get()};
  return Spawn(command);
}

bool Ended(const Pipe& end) {
  char byte;
  return read(end.read.get(), &byte, 1) == 0;
}

TEST(GuardTest, KillsWhatIsWatchedWhenItsOwnerIsKilled) {
  auto end = MakePipe();
  ASSERT_THAT(end, IsOk());
  const pid_t owner = fork();
  if (owner == 0) {
    absl::StatusOr<Guard> guard = Guard::Start();
    const absl::StatusOr<pid_t> group = Sleepers(*end);
    if (guard.ok() && group.ok()) guard->Watch(*group);
    raise(SIGKILL);
  }
  end->write.Reset();
  EXPECT_TRUE(Ended(*end));
  waitpid(owner, nullptr, 0);
}

TEST(GuardTest, WhatIsForgottenLives) {
  auto end = MakePipe();
  ASSERT_THAT(end, IsOk());
  const absl::StatusOr<pid_t> group = Sleepers(*end);
  ASSERT_THAT(group, IsOk());
  {
    absl::StatusOr<Guard> guard = Guard::Start();
    ASSERT_THAT(guard, IsOk());
    guard->Watch(*group);
    guard->Forget(*group);
  }
  EXPECT_EQ(waitpid(*group, nullptr, WNOHANG), 0);
  {
    absl::StatusOr<Guard> guard = Guard::Start();
    ASSERT_THAT(guard, IsOk());
    guard->Watch(*group);
  }
  end->write.Reset();
  EXPECT_TRUE(Ended(*end));
  waitpid(*group, nullptr, 0);
}

TEST(GuardTest, HoldsNothingOpen) {
  auto end = MakePipe();
  ASSERT_THAT(end, IsOk());
  const auto guard = Guard::Start();
  ASSERT_THAT(guard, IsOk());
  end->write.Reset();
  EXPECT_TRUE(Ended(*end));
}

}  // namespace
}  // namespace mir::launch
