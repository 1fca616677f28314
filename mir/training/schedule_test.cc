#include "mir/training/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace mir::training {
namespace {

TEST(ScheduleTest, GoesFromTheRateTowardsZero) {
  for (const int64_t step : {0, 50, 99}) {
    EXPECT_EQ(LearningRateAt("constant", 0.1, step, 100), 0.1);
  }
  for (const char* schedule : {"poly", "cosine"}) {
    EXPECT_EQ(LearningRateAt(schedule, 0.1, 0, 100), 0.1);
    double before = 0.2;
    for (int64_t step = 0; step < 100; ++step) {
      const double rate = LearningRateAt(schedule, 0.1, step, 100);
      EXPECT_LT(rate, before) << schedule << " " << step;
      EXPECT_GT(rate, 0) << schedule << " " << step;
      before = rate;
    }
  }
  EXPECT_NEAR(LearningRateAt("poly", 0.1, 50, 100), 0.1 * std::pow(0.5, 0.9),
              1e-15);
  EXPECT_NEAR(LearningRateAt("cosine", 0.1, 50, 100), 0.05, 1e-15);
}

}  // namespace
}  // namespace mir::training
