#include "mir/base/exit_status.h"

#include <gtest/gtest.h>

namespace mir {
namespace {

TEST(ExitStatusTest, TheInnermostCodeStays) {
  const absl::Status status =
      WithExitCode(WithExitCode(absl::DataLossError("cut short"), 10), 12);
  EXPECT_EQ(ExitCodeOf(status), 10);
  EXPECT_EQ(status.message(), "cut short");
}

TEST(ExitStatusTest, HasDefaults) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCodeOf(WithExitCode(absl::OkStatus(), 10)), 0);
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("x")), 2);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("x")), 1);
}

}  // namespace
}  // namespace mir
