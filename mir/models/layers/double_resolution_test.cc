#include "mir/models/layers/double_resolution.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/upsample_trilinear3d.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "mir/testing/gradient_check.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::models {
namespace {

using ::mir::testing::AllClose;
using ::mir::testing::GradientError;
using ::mir::testing::RelativeL2Near;
using ::testing::ElementsAre;

at::Tensor ByOperator(const at::Tensor& x, bool align_corners) {
  return at::upsample_trilinear3d(
      x, {2 * x.size(2), 2 * x.size(3), 2 * x.size(4)}, align_corners,
      /*scales_d=*/2.0, /*scales_h=*/2.0, /*scales_w=*/2.0);
}

TEST(DoubleResolutionTest, IsTheOperatorWithItsGradient) {
  at::manual_seed(1);
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{2, 3, 1, 2, 3},
        std::vector<int64_t>{1, 2, 9, 5, 4},
        std::vector<int64_t>{1, 1, 17, 12, 33}}) {
    for (const bool align_corners : {false, true}) {
      for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
        const double epsilon = dtype == at::kDouble ? 2.2e-16 : 1.2e-7;
        const at::Tensor x =
            at::randn(sizes, at::kDouble).to(dtype).requires_grad_();
        const at::Tensor expected = ByOperator(x, align_corners);
        const at::Tensor result = DoubleResolutionOnCpu(x, align_corners);
        // Places are rounded, up to the size's epsilon.
        EXPECT_THAT(result.detach(), AllClose(expected.detach(), 40 * epsilon));
        const at::Tensor cotangent =
            at::randn(expected.sizes(), expected.options());
        const auto gradient = [&](const at::Tensor& out) {
          return torch::autograd::grad({out}, {x}, {cotangent})[0];
        };
        EXPECT_THAT(gradient(result),
                    AllClose(gradient(expected), 40 * epsilon));
      }
    }
  }
}

TEST(DoubleResolutionTest, HasTheGradientOfItsDifferences) {
  at::manual_seed(2);
  for (const bool align_corners : {false, true}) {
    EXPECT_LT(GradientError(
                  [&](const std::vector<at::Tensor>& inputs) {
                    return DoubleResolutionOnCpu(inputs[0], align_corners);
                  },
                  {at::randn({2, 2, 3, 4, 5}, at::kDouble)}, /*step=*/1e-3),
              1e-9);
  }
}

TEST(DoubleResolutionTest, HasASecondDerivative) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({1, 2, 3, 4, 5}, at::kDouble).requires_grad_();
  const auto second = [&](const at::Tensor& out) {
    const at::Tensor first = torch::autograd::grad({out.pow(3).sum()}, {x}, {},
                                                   /*retain_graph=*/true,
                                                   /*create_graph=*/true)[0];
    return torch::autograd::grad({first.square().sum()}, {x})[0];
  };
  EXPECT_THAT(second(DoubleResolutionOnCpu(x, true)),
              RelativeL2Near(second(ByOperator(x, true)), 1e-13));
}

TEST(DoubleResolutionTest, IsOneFunctionSmallAndLarge) {
  at::manual_seed(4);
  for (const int64_t side : {4, 65}) {
    const at::Tensor x = at::randn({1, 1, side, side, side});
    EXPECT_THAT(DoubleResolution(x, true),
                AllClose(ByOperator(x, true), 2 * side * 1.2e-7));
  }
}

TEST(DoubleResolutionTest, TakesImagesAnd16Bits) {
  EXPECT_THAT(DoubleResolution(at::randn({1, 2, 3, 4}), true).sizes(),
              ElementsAre(1, 2, 6, 8));
  const at::Tensor x = at::randn({1, 2, 3, 4, 5});
  const at::Tensor half = DoubleResolution(x.to(at::kHalf), false);
  EXPECT_EQ(half.scalar_type(), at::kHalf);
  EXPECT_THAT(half, AllClose(DoubleResolution(x, false), 4 * 9.8e-4));
}

}  // namespace
}  // namespace mir::models
