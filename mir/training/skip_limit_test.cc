#include "mir/training/skip_limit.h"

#include <gtest/gtest.h>

namespace mir::training {
namespace {

TEST(SkipLimitTest, WithoutAScalerSoManyStepsOfTheRunMayBeSkipped) {
  SkipLimit none(0);
  EXPECT_FALSE(none.Exceeded(/*finite=*/true, /*updated=*/true, false));
  EXPECT_TRUE(none.Exceeded(/*finite=*/false, /*updated=*/false, false));
  SkipLimit two(2);
  EXPECT_FALSE(two.Exceeded(false, false, false));
  EXPECT_FALSE(two.Exceeded(true, true, false));
  EXPECT_FALSE(two.Exceeded(false, false, false));
  EXPECT_TRUE(two.Exceeded(false, false, false));
}

TEST(SkipLimitTest, AScalerMaySearchForAScaleButNotForEver) {
  SkipLimit limit(0);
  for (int step = 0; step < SkipLimit::kSkipsInARow; ++step) {
    EXPECT_FALSE(limit.Exceeded(/*finite=*/true, /*updated=*/false, true));
  }
  // It found one: the count begins anew.
  EXPECT_FALSE(limit.Exceeded(true, true, true));
  for (int step = 0; step < SkipLimit::kSkipsInARow; ++step) {
    EXPECT_FALSE(limit.Exceeded(/*finite=*/false, /*updated=*/false, true));
  }
  EXPECT_TRUE(limit.Exceeded(false, false, true));
}

TEST(SkipLimitTest, WhatTheUserAllowsComesOnTop) {
  SkipLimit limit(3);
  for (int step = 0; step < SkipLimit::kSkipsInARow + 3; ++step) {
    EXPECT_FALSE(limit.Exceeded(false, false, true));
  }
  EXPECT_TRUE(limit.Exceeded(false, false, true));
}

}  // namespace
}  // namespace mir::training
