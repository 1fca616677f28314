#include "mir/testing/multi_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace mir::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(RunProcessesTest, EachRankRunsTheBodyInAProcessOfItsOwn) {
  const auto results =
      RunProcesses({3,
                    [](int rank) -> std::map<std::string, std::string> {
                      return {{"MIR_TEST_VALUE", absl::StrCat("v", rank)}};
                    }},
                   [](int rank) {
                     EXPECT_TRUE(IsChildProcess());
                     return absl::StrCat(rank, " ", getenv("MIR_TEST_VALUE"),
                                         " ", getppid());
                   });
  ASSERT_EQ(results.size(), 3);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(results[rank], Succeeded());
    EXPECT_EQ(results[rank].value,
              absl::StrCat(rank, " v", rank, " ", getpid()));
  }
  EXPECT_FALSE(IsChildProcess());
}

TEST(RunProcessesTest, TellsHowEachEnded) {
  const auto results = RunProcesses({4}, [](int rank) -> std::string {
    if (rank == 0) _exit(20);
    if (rank == 1) raise(SIGKILL);
    EXPECT_NE(rank, 2) << "a failed expectation";
    if (rank == 3) throw std::runtime_error("an exception");
    return "";
  });
  ASSERT_EQ(results.size(), 4);
  EXPECT_THAT(results[0], ExitedWith(20));
  EXPECT_EQ(results[1].signal, SIGKILL);
  EXPECT_THAT(results[2], ExitedWith(1));
  EXPECT_THAT(results[2].output, HasSubstr("a failed expectation"));
  EXPECT_THAT(results[3], ExitedWith(1));
  EXPECT_THAT(results[3].output, HasSubstr("an exception"));
}

TEST(RunProcessesTest, KillsWhatHangs) {
  const auto results =
      RunProcesses({2, nullptr, absl::Milliseconds(500)}, [](int rank) {
        if (rank == 1) absl::SleepFor(absl::Hours(1));
        return std::string();
      });
  ASSERT_EQ(results.size(), 2);
  EXPECT_THAT(results[1].timed_out, true);
  EXPECT_THAT(results[1], Not(Succeeded()));
}

}  // namespace
}  // namespace mir::testing
