#include "mir/launch/stop_flag.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace mir::launch {
namespace {

// Each case runs in a process of its own: the flag is set once and for all.

TEST(StopFlagDeathTest, EachSignalSetsTheFlag) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    EXPECT_EXIT(
        {
          HandleStopSignals();
          const bool before = StopRequested();
          raise(signal);
          _exit(!before && StopRequested() && StopSignal() == signal ? 0 : 1);
        },
        ::testing::ExitedWithCode(0), "");
  }
}

TEST(StopFlagDeathTest, ASecondSignalAtOnceIsTheSameRequest) {
  EXPECT_EXIT(
      {
        HandleStopSignals();
        raise(SIGTERM);
        raise(SIGTERM);
        _exit(StopSignal() == SIGTERM ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(StopFlagDeathTest, ASecondSignalLaterEndsTheProcess) {
  EXPECT_EXIT(
      {
        HandleStopSignals();
        raise(SIGINT);
        usleep(300'000);
        raise(SIGTERM);
        _exit(0);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

TEST(StopFlagDeathTest, TheSchedulersWarningDoesNotCountTowardsTheEnd) {
  EXPECT_EXIT(
      {
        HandleStopSignals();
        raise(SIGUSR1);
        usleep(300'000);
        raise(SIGTERM);
        usleep(300'000);
        raise(SIGUSR1);
        _exit(StopSignal() == SIGUSR1 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace mir::launch
