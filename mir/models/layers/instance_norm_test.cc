#include "mir/models/layers/instance_norm.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/instance_norm.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "mir/testing/gradient_check.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::models {
namespace {

using ::mir::testing::GradientError;
using ::mir::testing::GradientsAndOutput;
using ::mir::testing::RelativeL2Near;

at::Tensor ByOperators(const at::Tensor& x, const at::Tensor& weight,
                       const at::Tensor& bias, double slope) {
  return at::leaky_relu(
      at::instance_norm(x, weight, bias, /*running_mean=*/{},
                        /*running_var=*/{}, /*use_input_stats=*/true,
                        /*momentum=*/0.1, /*eps=*/1e-5, /*cudnn_enabled=*/true),
      slope);
}

std::vector<at::Tensor> Leaves(at::IntArrayRef sizes, bool affine) {
  std::vector<at::Tensor> leaves = {
      (at::randn(sizes, at::kDouble) + 3).requires_grad_()};
  for (int i = 0; affine && i < 2; ++i) {
    leaves.push_back(at::randn({sizes[1]}, at::kDouble).requires_grad_());
  }
  return leaves;
}

template <typename Function>
at::Tensor Apply(const std::vector<at::Tensor>& leaves, double slope,
                 const Function& function) {
  return leaves.size() == 1
             ? function(leaves[0], at::Tensor(), at::Tensor(), slope)
             : function(leaves[0], leaves[1], leaves[2], slope);
}

// The output and the gradients of a fixed sum to all leaves.
template <typename Function>
std::vector<at::Tensor> Results(const std::vector<at::Tensor>& leaves,
                                double slope, const Function& function) {
  return GradientsAndOutput(Apply(leaves, slope, function), leaves);
}

TEST(InstanceNormTest, IsTheOperatorsAndALeakyRelu) {
  at::manual_seed(1);
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{2, 3, 5, 4, 7}, std::vector<int64_t>{1, 2, 20, 30},
        std::vector<int64_t>{1, 2, 17, 25, 31}}) {
    for (const bool affine : {false, true}) {
      for (const double slope : {0.01, 1.0}) {
        const std::vector<at::Tensor> leaves = Leaves(sizes, affine);
        const std::vector<at::Tensor> expected =
            Results(leaves, slope, ByOperators);
        const std::vector<at::Tensor> results =
            Results(leaves, slope, InstanceNormOnCpu);
        for (size_t i = 0; i < expected.size(); ++i) {
          EXPECT_THAT(results[i], RelativeL2Near(expected[i], 1e-13)) << i;
        }

        std::vector<at::Tensor> single;
        for (const at::Tensor& leaf : leaves) {
          single.push_back(leaf.detach().to(at::kFloat).requires_grad_());
        }
        const std::vector<at::Tensor> in_float =
            Results(single, slope, InstanceNormOnCpu);
        for (size_t i = 0; i < expected.size(); ++i) {
          EXPECT_THAT(in_float[i], RelativeL2Near(expected[i], 50 * 1.2e-7))
              << i;
        }
      }
    }
  }
}

TEST(InstanceNormTest, HasTheGradientOfItsDifferences) {
  at::manual_seed(2);
  std::vector<at::Tensor> inputs;
  for (const at::Tensor& leaf : Leaves({2, 2, 3, 4, 5}, /*affine=*/true)) {
    inputs.push_back(leaf.detach());
  }
  EXPECT_LT(GradientError(
                [](const std::vector<at::Tensor>& values) {
                  return InstanceNormOnCpu(values[0], values[1], values[2],
                                           0.2);
                },
                inputs, /*step=*/1e-6),
            1e-6);
}

TEST(InstanceNormTest, HasASecondDerivative) {
  at::manual_seed(3);
  const std::vector<at::Tensor> leaves =
      Leaves({1, 2, 3, 4, 5}, /*affine=*/true);
  const auto second = [&](const auto& function) {
    const std::vector<at::Tensor> first = torch::autograd::grad(
        {Apply(leaves, 0.2, function).pow(3).sum()}, leaves, {},
        /*retain_graph=*/true, /*create_graph=*/true);
    return torch::autograd::grad({first[0].square().sum()}, leaves);
  };
  const std::vector<at::Tensor> expected = second(ByOperators);
  const std::vector<at::Tensor> results = second(InstanceNormOnCpu);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_THAT(results[i], RelativeL2Near(expected[i], 1e-12)) << i;
  }
}

TEST(InstanceNormTest, IsOneFunctionSmallAndLarge) {
  at::manual_seed(6);
  for (const int64_t side : {4, 130}) {
    const at::Tensor x = at::randn({1, 1, side, side, side});
    EXPECT_THAT(InstanceNorm(x, {}, {}, 0.01),
                RelativeL2Near(ByOperators(x, {}, {}, 0.01), 50 * 1.2e-7));
  }
}

TEST(InstanceNormTest, KeepsWhatAConstantOffsetWouldHide) {
  at::manual_seed(4);
  const at::Tensor x = at::randn({1, 2, 8, 9, 10});
  // A mean of 1000 deviations: naive sums of squares lose everything.
  EXPECT_THAT(
      InstanceNormOnCpu(x + 1000, {}, {}, 1),
      RelativeL2Near(InstanceNormOnCpu((x + 1000).to(at::kDouble), {}, {}, 1),
                     1e-4));
}

}  // namespace
}  // namespace mir::models
