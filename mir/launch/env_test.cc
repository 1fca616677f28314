#include "mir/launch/env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "absl/status/status.h"
#include "mir/testing/status_matchers.h"

namespace mir::launch {
namespace {

using ::mir::testing::IsOkAndHolds;
using ::mir::testing::StatusIs;

TEST(EnvTest, HoldsThisProcesssVariables) {
  setenv("MIR_ENV_TEST", "a=b", 1);
  EXPECT_EQ(Get(CurrentEnv(), "MIR_ENV_TEST"), "a=b");
  unsetenv("MIR_ENV_TEST");
  EXPECT_FALSE(Has(CurrentEnv(), "MIR_ENV_TEST"));
}

TEST(EnvTest, EmptyIsNotSet) {
  EXPECT_FALSE(Has({{"A", ""}}, "A"));
  EXPECT_TRUE(Has({{"A", "x"}}, "A"));
  EXPECT_EQ(Get({}, "A"), "");
}

TEST(EnvTest, NumbersHaveARange) {
  EXPECT_THAT(GetInt({{"A", "7"}}, "A", 0, 7), IsOkAndHolds(7));
  EXPECT_THAT(GetInt({}, "A", 0, 7),
              StatusIs(absl::StatusCode::kFailedPrecondition, "A is not set"));
  for (const char* value : {"8", "-1", "x", "1.5", "99999999999999999999"}) {
    EXPECT_THAT(GetInt({{"A", value}}, "A", 0, 7),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         std::string("A=") + value +
                             " is not a whole number from 0 to 7"));
  }
}

}  // namespace
}  // namespace mir::launch
