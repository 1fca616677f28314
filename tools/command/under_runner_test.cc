#include "tools/command/under_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "mir/base/exit_status.h"
#include "mir/launch/exit_codes.h"
#include "mir/testing/status_matchers.h"

namespace mir::tools {
namespace {

using mir::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(WithoutFlagsTest, TakesFlagsAndTheirValuesAway) {
  EXPECT_THAT(WithoutFlags({"--data", "list.json", "--cpu-procs", "2",
                            "--cpu_procs=3", "--gpus=all", "--threads=1"},
                           {"cpu-procs", "gpus"}),
              ElementsAre("--data", "list.json", "--threads=1"));
}

TEST(WithoutFlagsTest, KeepsValuesThatLookLikeNames) {
  EXPECT_THAT(WithoutFlags({"--out", "gpus", "--gpus"}, {"gpus"}),
              ElementsAre("--out", "gpus"));
}

TEST(BecomeRunnerTest, SaysWhichFileCannotBeRun) {
  const absl::Status status = BecomeRunner("/nowhere/train", {}, {});
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr("/nowhere/train: No such file")));
  EXPECT_EQ(ExitCodeOf(status), launch::kEnvironment);
}

TEST(BecomeRunnerTest, ARankStartsNoRanks) {
  setenv("RANK", "0", /*overwrite=*/1);
  EXPECT_THAT(BecomeRunner("/nowhere/train", {}, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("a rank already")));
  unsetenv("RANK");
}

TEST(RunnerBesideThisTest, IsInTheFolderBesideThisPrograms) {
  EXPECT_THAT(RunnerBesideThis(), EndsWith("/tools/train/train"));
}

}  // namespace
}  // namespace mir::tools
