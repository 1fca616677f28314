#include "mir/geometry/spatial_transformer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "mir/testing/tensor_matchers.h"

namespace mir::geometry {
namespace {

using ::mir::testing::AllClose;
using ::mir::testing::TensorEq;

at::Tensor Row(std::vector<double> values) {
  return at::tensor(values, at::kFloat).view({1, 1, 1, -1});
}

TEST(SpatialTransformerTest, IsMirsByDefault) {
  const SpatialTransformer transform;
  EXPECT_EQ(transform.options().convention, WarpConvention::kMirCompatible);
  // Of 3 voxels, v is read at v * 3 / 2 - 0.5: at -0.5, 1 and 2.5.
  EXPECT_THAT(transform(Row({2, 4, 8}), at::zeros({1, 2, 1, 3})),
              AllClose(Row({1, 4, 4}), 4 * 1.2e-7));
}

TEST(SpatialTransformerTest, UsesItsOptionsForEverySize) {
  const SpatialTransformer transform(
      {WarpConvention::kExact, Interpolation::kNearest, Outside::kNearestEdge});
  EXPECT_THAT(transform(Row({2, 4, 8}), at::zeros({1, 2, 1, 3}) + 0.75),
              TensorEq(Row({4, 8, 8})));
  EXPECT_THAT(transform(Row({2, 4}), at::zeros({1, 2, 1, 2}) - 0.75),
              TensorEq(Row({2, 2})));
}

TEST(SpatialTransformerTest, RefusesWhatWarpRefuses) {
  EXPECT_THROW(SpatialTransformer()(Row({2, 4}), at::zeros({1, 2, 1, 3})),
               c10::ValueError);
}

}  // namespace
}  // namespace mir::geometry
