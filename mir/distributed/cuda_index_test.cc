#include "mir/distributed/cuda_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mir/testing/status_matchers.h"

namespace mir::distributed {
namespace {

using mir::testing::IsOkAndHolds;
using mir::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CudaIndexTest, FollowsTheLocalRank) {
  launch::World world;
  world.rank = 7;
  world.local_rank = 3;
  EXPECT_THAT(CudaIndex(world, 4), IsOkAndHolds(3));
  // One device per process, as `srun --gpus-per-task=1` shows them.
  EXPECT_THAT(CudaIndex(world, 1), IsOkAndHolds(0));
  EXPECT_THAT(CudaIndex(world, 2),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("rank 7"), HasSubstr("LOCAL_RANK=3"),
                             HasSubstr("only 2 are visible"))));
}

}  // namespace
}  // namespace mir::distributed
