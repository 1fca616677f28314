#include "mir/geometry/invert.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "mir/geometry/compose.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::geometry {
namespace {

using ::mir::testing::TensorEq;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// A smooth displacement of about `reach` voxels that ends at the faces.
at::Tensor Smooth(int64_t side, double reach) {
  const at::Tensor bump =
      at::arange(side, at::kFloat).mul_(M_PI / (side - 1)).sin().pow_(2);
  const at::Tensor window = bump.view({-1, 1, 1}) * bump.view({-1, 1}) * bump;
  return reach * at::stack({window, -window, 0.5 * window}).unsqueeze(0);
}

TEST(InvertTest, FieldAndInverseComposeToTheIdentity) {
  const at::Tensor field = Smooth(32, 2);
  const Inverse inverse = Invert(field);
  EXPECT_LE(inverse.residual, 1e-3);
  EXPECT_LT(inverse.iterations, 50);
  EXPECT_LT(Compose(field, inverse.displacement).abs().max().item<float>(),
            2e-3);
  EXPECT_LT(Compose(inverse.displacement, field).abs().max().item<float>(),
            0.05);  // Voxels.
}

TEST(InvertTest, AFieldOfEightVoxelsIsInvertedWithinATwentiethOfOne) {
  const at::Tensor field = Smooth(64, 8);
  const Inverse inverse = Invert(field);
  EXPECT_LE(inverse.residual, 1e-3);
  EXPECT_LT(Compose(field, inverse.displacement).abs().max().item<double>(),
            2e-3);
  EXPECT_LT(Compose(inverse.displacement, field).abs().max().item<double>(),
            0.05);  // Voxels.
}

TEST(InvertTest, InverseOfATranslationIsItsOpposite) {
  const at::Tensor field = at::full({2, 2, 5, 6}, 1.5);
  const Inverse inverse = Invert(field);
  EXPECT_THAT(inverse.displacement, TensorEq(-field));
  EXPECT_EQ(inverse.residual, 0);
  EXPECT_EQ(inverse.iterations, 0);
}

TEST(InvertTest, FollowsTheConvention) {
  InvertOptions options;
  options.convention = WarpConvention::kMirCompatible;
  options.tolerance = 1e-5;
  const at::Tensor field = Smooth(20, 2).to(at::kDouble);
  const Inverse inverse = Invert(field, options);
  EXPECT_EQ(inverse.displacement.scalar_type(), at::kDouble);
  EXPECT_LE(inverse.residual, 1e-5);
  EXPECT_LE(Compose(field, inverse.displacement, options.convention)
                .abs()
                .max()
                .item<double>(),
            1e-5);
}

TEST(InvertTest, SaysHowFarFromAnInverseItIs) {
  InvertOptions options;
  options.max_iterations = 1;
  const Inverse inverse = Invert(Smooth(32, 4), options);
  EXPECT_EQ(inverse.iterations, 1);
  EXPECT_GT(inverse.residual, options.tolerance);
}

TEST(InvertTest, SaysWhatWasWantedAndWhatCame) {
  InvertOptions none;
  none.max_iterations = 0;
  const at::Tensor field = at::zeros({1, 2, 5, 6});
  EXPECT_THAT(
      [&] { Invert(field, none); },
      ThrowsMessage<c10::ValueError>(HasSubstr("at least 1 iteration")));
  EXPECT_THAT(
      [] {
        Invert(at::zeros({1, 1, 5, 6}));
      },
      ThrowsMessage<c10::ValueError>(HasSubstr("Invert: wanted displacement")));
  EXPECT_THAT(
      [] {
        Invert(at::zeros({1}).expand({1, 3, 2048, 1024, 1024}));
      },
      ThrowsMessage<c10::ValueError>(HasSubstr("fewer than 2^31 voxels")));
  EXPECT_THAT([&] { Invert(field + std::numeric_limits<float>::infinity()); },
              ThrowsMessage<c10::ValueError>(HasSubstr("[0, 0, 0, 0] is ")));
  EXPECT_EQ(Invert(at::zeros({0, 2, 5, 6})).displacement.numel(), 0);
}

}  // namespace
}  // namespace mir::geometry
