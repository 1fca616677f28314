#include "mir/testing/status_matchers.h"

#include <gtest/gtest.h>

namespace mir::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(StatusMatchersTest, TellsOkFromErrors) {
  EXPECT_THAT(absl::OkStatus(), IsOk());
  EXPECT_THAT(absl::NotFoundError("x"), Not(IsOk()));
}

TEST(StatusMatchersTest, LooksIntoValues) {
  EXPECT_THAT(absl::StatusOr<int>(3), IsOkAndHolds(3));
  EXPECT_THAT(absl::StatusOr<int>(4), Not(IsOkAndHolds(3)));
  EXPECT_THAT(absl::StatusOr<int>(absl::NotFoundError("x")),
              Not(IsOkAndHolds(3)));
}

TEST(StatusMatchersTest, ComparesCodeAndMessage) {
  const absl::Status status = absl::DataLossError("volume.nii is cut short");
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("volume.nii")));
  EXPECT_THAT(status, Not(StatusIs(absl::StatusCode::kNotFound, "")));
}

}  // namespace
}  // namespace mir::testing
