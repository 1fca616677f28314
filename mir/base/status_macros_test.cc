#include "mir/base/status_macros.h"

#include <gtest/gtest.h>

#include <memory>

namespace mir {
namespace {

absl::StatusOr<std::unique_ptr<int>> Boxed(bool good) {
  if (!good) return absl::NotFoundError("no box");
  return std::make_unique<int>(7);
}

absl::StatusOr<int> Opened(bool good) {
  MIR_ASSIGN_OR_RETURN(const std::unique_ptr<int> box, Boxed(good));
  return *box;
}

absl::Status Checked(const absl::Status& status, bool& went_on) {
  MIR_RETURN_IF_ERROR(status);
  went_on = true;
  return absl::OkStatus();
}

TEST(StatusMacrosTest, AssignsMoveOnlyValuesOrReturnsTheError) {
  EXPECT_EQ(Opened(true).value(), 7);
  EXPECT_EQ(Opened(false).status(), absl::NotFoundError("no box"));
}

TEST(StatusMacrosTest, ReturnsErrorsOnly) {
  bool went_on = false;
  EXPECT_EQ(Checked(absl::DataLossError("cut"), went_on),
            absl::DataLossError("cut"));
  EXPECT_FALSE(went_on);
  EXPECT_TRUE(Checked(absl::OkStatus(), went_on).ok());
  EXPECT_TRUE(went_on);
}

}  // namespace
}  // namespace mir
