#include "mir/models/layers/convolution.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/full.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>
#include <torch/utils.h>

#include <cmath>
#include <vector>

#include "mir/precision/autocast.h"
#include "mir/precision/precision.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::models {
namespace {

using ::mir::testing::RelativeL2Near;
using ::mir::testing::TensorEq;

ConvolutionOptions Options(int64_t ndims, int64_t stride = 1) {
  ConvolutionOptions options;
  options.ndims = ndims;
  options.in_channels = 2;
  options.out_channels = 3;
  options.stride = stride;
  return options;
}

TEST(ConvolutionTest, SumsANeighbourhoodInTwoAndThreeDimensions) {
  for (const int64_t ndims : {2, 3}) {
    for (const int64_t stride : {1, 2}) {
      Convolution convolution(Options(ndims, stride));
      convolution.weight.detach().fill_(1);
      convolution.bias.detach().fill_(0.5);
      std::vector<int64_t> shape(2 + ndims, 4);
      shape[0] = 1;
      shape[1] = 2;

      const at::Tensor sums =
          convolution.forward(at::ones(shape)).detach().select(0, 0);

      ASSERT_EQ(sums.size(0), 3);
      at::Tensor corner = sums[1], inside = sums[1];
      for (int64_t axis = 0; axis < ndims; ++axis) {
        EXPECT_EQ(sums.size(1 + axis), 4 / stride);
        corner = corner[0];
        inside = inside[1];
      }
      // Two channels of 3^n neighbours, of which a corner has 2^n.
      EXPECT_EQ(corner.item<float>(), 2 * std::pow(2, ndims) + 0.5);
      EXPECT_EQ(inside.item<float>(), 2 * std::pow(3, ndims) + 0.5);
    }
  }
}

TEST(ConvolutionTest, TakesAListAndLeaksInLargeAndSmallVolumes) {
  at::manual_seed(2);
  const Convolution convolution(Options(3));
  for (const int64_t side : {6, 60}) {
    const at::Tensor x = at::rand({1, 2, side, side, side});
    const at::Tensor expected = at::leaky_relu(
        at::conv3d(x, convolution.weight, convolution.bias, /*stride=*/1,
                   /*padding=*/1),
        0.2);
    const std::vector<at::Tensor> halves = {x.narrow(1, 0, 1),
                                            x.narrow(1, 1, 1)};
    EXPECT_THAT(convolution.forward(halves, /*negative_slope=*/0.2).detach(),
                RelativeL2Near(expected.detach(), 20 * 1.2e-7));
  }
}

TEST(ConvolutionTest, DrawsTheInitialWeightsOfPyTorch) {
  at::manual_seed(3);
  const torch::nn::Conv2d conv2d(torch::nn::Conv2dOptions(2, 3, 3).padding(1));
  const torch::nn::Conv3d conv3d(torch::nn::Conv3dOptions(2, 3, 3).padding(1));
  at::manual_seed(3);
  const Convolution ours2d(Options(2));
  const Convolution ours3d(Options(3));

  EXPECT_THAT(ours2d.weight, TensorEq(conv2d->weight));
  EXPECT_THAT(ours2d.bias, TensorEq(conv2d->bias));
  EXPECT_THAT(ours3d.weight, TensorEq(conv3d->weight));
  EXPECT_THAT(ours3d.bias, TensorEq(conv3d->bias));
}

// Leaves NaNs in freed memory, as the allocator will hand it out again.
void SoilMemory() {
  std::vector<at::Tensor> soiled;
  for (const int64_t size : {1000, 5000, 20000, 65536, 131072}) {
    soiled.push_back(at::full({size}, std::nan("")));
  }
}

TEST(ConvolutionTest, BFloat16GradientsOfSmallInputsAreThoseOfFloat32) {
  struct Case {
    int64_t ndims;
    int64_t size;
    int64_t stride;
  };
  for (const auto& [ndims, size, stride] :
       {Case{3, 2, 1}, Case{3, 1, 2}, Case{2, 1, 2}, Case{3, 4, 1}}) {
    SCOPED_TRACE(::testing::Message()
                 << ndims << "-D, size " << size << ", stride " << stride);
    torch::manual_seed(1);
    ConvolutionOptions options = Options(ndims, stride);
    options.in_channels = options.out_channels = 16;
    Convolution convolution(options);
    std::vector<int64_t> shape(2 + ndims, size);
    shape[0] = 1;
    shape[1] = 16;
    const at::Tensor input = at::rand(shape);
    convolution.forward(input).square().sum().backward();
    const at::Tensor expected = convolution.weight.grad().clone();
    for (int repeat = 0; repeat < 8; ++repeat) {
      convolution.zero_grad();
      SoilMemory();
      at::Tensor output;
      {
        const precision::Autocast autocast(at::kCPU,
                                           precision::Precision::kBFloat16);
        output = convolution.forward(input.to(at::kBFloat16));
      }
      EXPECT_EQ(output.scalar_type(), at::kBFloat16);
      output.to(at::kFloat).square().sum().backward();
      EXPECT_THAT(convolution.weight.grad(),
                  mir::testing::RelativeL2Near(expected, 4 * 0.0078125));
    }
  }
}

TEST(ConvolutionTest, RejectsOptionsOutOfRange) {
  EXPECT_THROW(Convolution{Options(1)}, c10::ValueError);
  EXPECT_THROW(Convolution{Options(4)}, c10::ValueError);
  EXPECT_THROW(Convolution{Options(3, /*stride=*/0)}, c10::ValueError);
  ConvolutionOptions options;
  options.out_channels = 0;
  EXPECT_THROW(Convolution{options}, c10::ValueError);
}

}  // namespace
}  // namespace mir::models
