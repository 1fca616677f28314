#include "mir/geometry/identity_grid.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mir/testing/tensor_matchers.h"

namespace mir::geometry {
namespace {

using ::mir::testing::TensorEq;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(IdentityGridTest, ChannelsAreCoordinates) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf}) {
    EXPECT_THAT(IdentityGrid({2, 3}, dtype),
                TensorEq(at::tensor({0, 0, 0, 1, 1, 1, 0, 1, 2, 0, 1, 2})
                             .view({2, 2, 3})
                             .to(dtype)));
  }
  const at::Tensor grid = IdentityGrid({4, 5, 6}, at::kFloat);
  EXPECT_THAT(grid.sizes(), ::testing::ElementsAre(3, 4, 5, 6));
  for (int64_t axis = 0; axis < 3; ++axis) {
    EXPECT_EQ(grid[axis][1][2][3].item<float>(), 1 + axis);
  }
}

TEST(IdentityGridTest, SaysWhatItWanted) {
  EXPECT_THAT([] { IdentityGrid({4}, at::kFloat); },
              ThrowsMessage<c10::ValueError>(HasSubstr("(D, H, W)")));
  EXPECT_THAT(
      [] {
        IdentityGrid({4, -1}, at::kFloat);
      },
      ThrowsMessage<c10::ValueError>(HasSubstr("(D, H, W)")));
  EXPECT_THAT(
      [] {
        IdentityGrid({4, 4}, at::kInt);
      },
      ThrowsMessage<c10::ValueError>(HasSubstr("floating")));
}

}  // namespace
}  // namespace mir::geometry
