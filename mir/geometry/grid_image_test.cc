#include "mir/geometry/grid_image.h"

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

TEST(GridImageTest, DrawsLinesAcrossTheOtherAxes) {
  EXPECT_THAT(
      GridImage({2, 5}, 2, /*axis=*/0),
      TensorEq(at::tensor({1., 0., 1., 0., 1., 1., 0., 1., 0., 1.}, at::kFloat)
                   .view({1, 1, 2, 5})));
  const at::Tensor image = GridImage({3, 4, 5}, 3, /*axis=*/1, /*first=*/1);
  for (int64_t h = 0; h < 4; ++h) {
    EXPECT_THAT(image[0][0].select(1, h),
                TensorEq(at::tensor({0., 1., 0., 0., 1., 1., 1., 1., 1., 1., 0.,
                                     1., 0., 0., 1.},
                                    at::kFloat)
                             .view({3, 5})));
  }
}

TEST(GridImageTest, SaysWhatItWanted) {
  EXPECT_THAT([] { GridImage({4}, 2, 0); },
              ThrowsMessage<c10::ValueError>(HasSubstr("positive sizes")));
  EXPECT_THAT(
      [] {
        GridImage({4, 4}, 0, 0);
      },
      ThrowsMessage<c10::ValueError>(HasSubstr("a step of at least")));
  EXPECT_THAT(
      [] {
        GridImage({4, 4}, 2, 2);
      },
      ThrowsMessage<c10::ValueError>(HasSubstr("one of 2 axes")));
}

}  // namespace
}  // namespace mir::geometry
