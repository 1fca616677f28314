#include "mir/training/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace mir::training {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class ProgressTest : public ::testing::Test {
 protected:
  ~ProgressTest() override { std::free(text_); }

  std::string Written() {
    std::fflush(stream_);
    return std::string(text_, size_);
  }

  char* text_ = nullptr;
  size_t size_ = 0;
  std::FILE* stream_ = open_memstream(&text_, &size_);
  const absl::Time start_ = absl::FromUnixSeconds(1'000);
};

TEST_F(ProgressTest, BarFitsTheTerminal) {
  EXPECT_EQ(ProgressBar(5, 10, -0.5, 2, 100),
            "    Training [===============>              ] 5/10  loss -0.5000  "
            "2.0 steps/s  0:03 left");
  EXPECT_LT(ProgressBar(5, 10, -0.5, 2, 80).size(), 80);
  EXPECT_EQ(ProgressBar(5, 10, -0.5, 2, 40),
            "    Training 5/10  loss -0.5000  2.0 steps/s  0:03 left");
}

TEST_F(ProgressTest, SlowRunsCountSecondsAndHours) {
  EXPECT_THAT(ProgressLine(1, 1000, 0.25, 0.1),
              HasSubstr("10.0 s/step  2:46:30 left"));
  EXPECT_EQ(ProgressLine(1, 9, 0.25, 0), "    Training 1/9  loss 0.2500");
}

TEST_F(ProgressTest, RedrawsInPlaceOnATerminal) {
  Progress progress({.steps = 3, .terminal = true}, stream_);
  progress.Show(1, 0.5, start_);
  progress.Show(2, 0.4, start_ + absl::Seconds(1));
  EXPECT_THAT(Written(), HasSubstr("\r\033[K"));
  EXPECT_THAT(Written(), HasSubstr("1.0 steps/s  0:01 left"));
  progress.Say("   Validated");
  progress.Show(3, 0.3, start_ + absl::Seconds(2));
  progress.Finish();
  EXPECT_THAT(Written(), EndsWith("\n"));
}

TEST_F(ProgressTest, WritesPlainLinesElsewhereNowAndThen) {
  Progress progress({.steps = 4}, stream_);
  for (int step = 1; step <= 4; ++step) {
    progress.Show(step, 0.5, start_ + absl::Seconds(step));
  }
  progress.Finish();
  EXPECT_THAT(Written(), Not(HasSubstr("\r")));
  EXPECT_EQ(std::count(text_, text_ + size_, '\n'), 2);  // First and last.
}

TEST_F(ProgressTest, ResumedRunsCountTheirOwnRate) {
  Progress progress({.terminal = true}, stream_);
  progress.SetSteps(100, 200);
  progress.Show(101, 0.5, start_);
  progress.Show(103, 0.5, start_ + absl::Seconds(1));
  EXPECT_THAT(Written(), HasSubstr("2.0 steps/s"));
}

}  // namespace
}  // namespace mir::training
