#include "mir/models/layers/convolve_volumes.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <vector>

#include "mir/testing/gradient_check.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::models {
namespace {

using ::mir::testing::GradientError;
using ::mir::testing::GradientsAndOutput;
using ::mir::testing::RelativeL2Near;
using ::mir::testing::TensorEq;

at::Tensor ByOperators(at::TensorList inputs, const at::Tensor& weight,
                       const at::Tensor& bias, double slope) {
  return at::leaky_relu(
      at::conv3d(at::cat(inputs, /*dim=*/1), weight, bias, /*stride=*/1,
                 /*padding=*/1),
      slope);
}

struct Shape {
  int64_t batch;
  std::vector<int64_t> in_channels;
  int64_t out_channels;
  std::array<int64_t, 3> size;
  bool bias;
  double slope;
};

// Rows shorter than a vector, of several, and with a rest; odd numbers of
// planes and rows; channels that fill no group.
const Shape kShapes[] = {
    {1, {1}, 1, {1, 1, 1}, true, 1},
    {2, {3}, 2, {3, 4, 5}, false, 0.2},
    {1, {2, 3}, 9, {4, 7, 20}, true, 0.01},
    {2, {8, 5}, 13, {9, 9, 40}, true, 1},
    {1, {4}, 16, {2, 26, 33}, true, 0.2},
    {1, {1, 1, 1}, 3, {6, 5, 101}, false, 1},
};

std::vector<at::Tensor> Leaves(const Shape& shape, at::ScalarType dtype) {
  const auto leaf = [&](at::IntArrayRef sizes) {
    return at::randn(sizes, at::kDouble).to(dtype).requires_grad_();
  };
  const auto [depth, height, width] = shape.size;
  std::vector<at::Tensor> leaves;
  int64_t channels = 0;
  for (const int64_t count : shape.in_channels) {
    leaves.push_back(leaf({shape.batch, count, depth, height, width}));
    channels += count;
  }
  leaves.push_back(leaf({shape.out_channels, channels, 3, 3, 3}));
  if (shape.bias) leaves.push_back(leaf({shape.out_channels}));
  return leaves;
}

// The output and the gradients of a fixed sum to all leaves.
template <typename Function>
std::vector<at::Tensor> Results(const Shape& shape,
                                const std::vector<at::Tensor>& leaves,
                                const Function& function) {
  const size_t inputs = shape.in_channels.size();
  return GradientsAndOutput(
      function(at::TensorList(leaves).slice(0, inputs), leaves[inputs],
               shape.bias ? leaves[inputs + 1] : at::Tensor(), shape.slope),
      leaves);
}

TEST(ConvolveVolumesTest, IsTheConvolutionOfWhatIsConcatenated) {
  at::manual_seed(1);
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(::testing::PrintToString(shape.size));
    const std::vector<at::Tensor> leaves = Leaves(shape, at::kDouble);
    const std::vector<at::Tensor> expected =
        Results(shape, leaves, ByOperators);
    const std::vector<at::Tensor> results =
        Results(shape, leaves, ConvolveVolumes);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_THAT(results[i], RelativeL2Near(expected[i], 20 * 2.2e-16)) << i;
    }

    std::vector<at::Tensor> single;
    for (const at::Tensor& leaf : leaves) {
      single.push_back(leaf.detach().to(at::kFloat).requires_grad_());
    }
    const std::vector<at::Tensor> in_float =
        Results(shape, single, ConvolveVolumes);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_THAT(in_float[i], RelativeL2Near(expected[i], 20 * 1.2e-7)) << i;
    }
  }
}

TEST(ConvolveVolumesTest, HasTheGradientOfItsDifferences) {
  at::manual_seed(2);
  const Shape shape = {2, {2, 1}, 3, {3, 4, 5}, true, 0.2};
  std::vector<at::Tensor> inputs;
  for (const at::Tensor& leaf : Leaves(shape, at::kDouble)) {
    inputs.push_back(leaf.detach());
  }
  EXPECT_LT(GradientError(
                [&](const std::vector<at::Tensor>& values) {
                  return ConvolveVolumes({values[0], values[1]}, values[2],
                                         values[3], shape.slope);
                },
                inputs, /*step=*/1e-6),
            1e-6);
}

TEST(ConvolveVolumesTest, GivesOnlyTheGradientsThatAreWanted) {
  at::manual_seed(3);
  const at::Tensor features = at::randn({1, 2, 4, 4, 4}).requires_grad_();
  const at::Tensor image = at::randn({1, 1, 4, 4, 4});
  const at::Tensor weight = at::randn({3, 3, 3, 3, 3});
  ConvolveVolumes({image, features}, weight, {}, 0.2).sum().backward();
  const at::Tensor gradient = features.grad().clone();
  features.mutable_grad().reset();
  ByOperators({image, features}, weight, {}, 0.2).sum().backward();
  EXPECT_THAT(gradient, RelativeL2Near(features.grad(), 20 * 1.2e-7));
  EXPECT_FALSE(image.grad().defined());
}

TEST(ConvolveVolumesTest, HasASecondDerivative) {
  at::manual_seed(4);
  const Shape shape = {1, {2, 1}, 2, {3, 3, 4}, true, 0.2};
  const std::vector<at::Tensor> leaves = Leaves(shape, at::kDouble);
  const auto second = [&](const auto& function) {
    const at::Tensor out = function(at::TensorList(leaves).slice(0, 2),
                                    leaves[2], leaves[3], shape.slope);
    const std::vector<at::Tensor> first = torch::autograd::grad(
        {out.square().sum()}, leaves, {}, /*retain_graph=*/true,
        /*create_graph=*/true);
    return torch::autograd::grad({first[2].square().sum()}, leaves);
  };
  const std::vector<at::Tensor> expected = second(ByOperators);
  const std::vector<at::Tensor> results = second(ConvolveVolumes);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_THAT(results[i], RelativeL2Near(expected[i], 1e-13)) << i;
  }
}

TEST(ConvolveVolumesTest, TakesAnyStrides) {
  at::manual_seed(5);
  const at::Tensor input = at::randn({2, 6, 5, 4, 3}).transpose(0, 1);
  const at::Tensor weight = at::randn({2, 3, 3, 3, 3}).transpose(0, 1);
  EXPECT_THAT(ConvolveVolumes(input, weight, {}, 1),
              TensorEq(ConvolveVolumes(input.contiguous(), weight.contiguous(),
                                       {}, 1)));
}

}  // namespace
}  // namespace mir::models
