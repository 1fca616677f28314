#include "mir/metrics/folding.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "mir/geometry/jacobian.h"

namespace mir::metrics {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(FoldedShareTest, ZeroDisplacementDoesNotFold) {
  for (const at::ScalarType dtype :
       {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    EXPECT_EQ(FoldedShare(at::zeros({2, 3, 4, 5, 6}, dtype)), 0);
    EXPECT_EQ(FoldedShare(at::zeros({2, 2, 5, 6}, dtype)), 0);
  }
}

TEST(FoldedShareTest, CountsVoxelsOfAllSamplesAndFaces) {
  // Differences along the last axis are -2 at the face, then -1, 0.5, 0.5, and
  // 0 at the other: two of five fold, in the second sample alone.
  at::Tensor field = at::zeros({2, 2, 3, 5});
  field[1][1] = at::tensor({0., -2., -2., -1., -1.}, at::kFloat);
  EXPECT_DOUBLE_EQ(FoldedShare(field), 0.2);
}

TEST(FoldedShareTest, CollapseCountsAsFolding) {
  // x + u(x) = 0 everywhere along one axis: J is exactly 0.
  at::Tensor field = at::zeros({1, 3, 3, 4, 5});
  field.select(1, 2).sub_(at::arange(5));
  EXPECT_EQ(FoldedShare(field), 1);
}

TEST(FoldedShareTest, ShrinkingIsNotFolding) {
  // Half of the voxels lose volume (0 < J < 1), so that log J is negative
  // there: what folds is told by J.
  at::Tensor field = at::zeros({1, 3, 4, 4, 8}, at::kDouble);
  field.select(1, 2).add_(-0.5 * at::arange(8).clamp_max(4));
  const at::Tensor determinants = geometry::JacobianDeterminant(field);
  EXPECT_EQ((determinants.log() < 0).sum().item<int64_t>(), 4 * 4 * 5);
  EXPECT_EQ(FoldedShare(field), 0);
}

TEST(FoldedShareTest, SlabsDoNotChangeIt) {
  // More voxels than are looked at at once.
  const at::Tensor field =
      at::rand({1, 3, 40, 150, 150}, at::detail::createCPUGenerator(1),
               at::TensorOptions(at::kDouble)) *
      4;
  const double expected = (geometry::JacobianDeterminant(field) <= 0)
                              .to(at::kDouble)
                              .mean()
                              .item<double>();
  EXPECT_GT(expected, 0.1);
  EXPECT_DOUBLE_EQ(FoldedShare(field), expected);
}

TEST(SdLogJacobianTest, IsZeroWhereVolumeChangesAlike) {
  at::Tensor field = at::zeros({1, 3, 6, 7, 8}, at::kDouble);
  EXPECT_EQ(SdLogJacobian(field), 0);
  field.select(1, 2).add_(0.25 * at::arange(8, at::kDouble));
  EXPECT_NEAR(SdLogJacobian(field), 0, 1e-7);
}

TEST(SdLogJacobianTest, TakesLearn2RegsLogarithmInside) {
  // 2 away from the faces, J along the last axis of 6 is 1 + (1, -0.5): the
  // central differences of 0, 0, 0, 2, -1, ... at 2 and 3.
  at::Tensor field = at::zeros({1, 2, 5, 6}, at::kDouble);
  field.select(1, 1).copy_(at::tensor({9., 0., 0., 2., -1., 9.}, at::kDouble));
  const double low = std::log(0.5 + 3), high = std::log(2.0 + 3);
  EXPECT_NEAR(SdLogJacobian(field), (high - low) / 2, 1e-12);
}

TEST(SdLogJacobianTest, ClipsWhatHasNoLogarithm) {
  // J at 2 and 3 is 1 + (-5, 2.5).
  at::Tensor field = at::zeros({1, 2, 5, 6}, at::kDouble);
  field.select(1, 1).copy_(at::tensor({9., 5., 0., -5., 5., 9.}, at::kDouble));
  const double low = std::log(1e-9), high = std::log(1 + 2.5 + 3);
  EXPECT_NEAR(SdLogJacobian(field), (high - low) / 2, 1e-9);
}

TEST(SdLogJacobianTest, SlabsDoNotChangeIt) {
  const at::Tensor field =
      at::rand({1, 3, 40, 150, 150}, at::detail::createCPUGenerator(1),
               at::TensorOptions(at::kDouble));
  at::Tensor inside = geometry::JacobianDeterminant(field);
  for (int64_t axis = 1; axis < 4; ++axis) {
    inside = inside.narrow(axis, 2, inside.size(axis) - 4);
  }
  const double expected = (inside + 3)
                              .clamp(1e-9, 1e9)
                              .log()
                              .std(/*unbiased=*/false)
                              .item<double>();
  EXPECT_NEAR(SdLogJacobian(field), expected, 1e-12 * expected);
}

TEST(FoldingTest, SaysWhatWasWantedAndWhatCame) {
  at::Tensor infinite = at::zeros({2, 3, 5, 6, 7});
  infinite[1][0][3][2][1] = std::numeric_limits<float>::infinity();
  at::Tensor nan = at::zeros({1, 2, 5, 6});
  nan[0][0][0][0] = std::numeric_limits<float>::quiet_NaN();
  const struct {
    at::Tensor displacement;
    const char* message;
  } cases[] = {
      {at::Tensor(), "displacement is undefined"},
      {at::zeros({1, 2, 5, 6, 7}), "or [N, 2, H, W], came [1, 2, 5, 6, 7]"},
      {at::zeros({1, 3, 5, 0, 7}), "with voxels, came [1, 3, 5, 0, 7]"},
      {at::zeros({0, 3, 5, 6, 7}), "wanted at least one displacement, came [0"},
      {at::zeros({1, 2, 5, 6}, at::kInt), "float64, came Int"},
      {infinite, "displacement[1, 0, 3, 2, 1] is inf; wanted finite values"},
      {nan, "displacement[0, 0, 0, 0] is nan"},
  };
  for (const auto& bad : cases) {
    EXPECT_THAT([&] { FoldedShare(bad.displacement); },
                ThrowsMessage<c10::ValueError>(
                    AllOf(HasSubstr("FoldedShare: "), HasSubstr(bad.message))));
    EXPECT_THAT([&] { SdLogJacobian(bad.displacement); },
                ThrowsMessage<c10::ValueError>(AllOf(
                    HasSubstr("SdLogJacobian: "), HasSubstr(bad.message))));
  }
  EXPECT_THAT(
      [] {
        SdLogJacobian(at::zeros({1, 3, 9, 4, 9}));
      },
      ThrowsMessage<c10::ValueError>(
          HasSubstr("wanted spatial sizes of at least 5")));
}

}  // namespace
}  // namespace mir::metrics
