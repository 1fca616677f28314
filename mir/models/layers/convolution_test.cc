#include "mir/models/layers/convolution.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>

#include "mir/testing/tensor_matchers.h"

namespace mir::models {
namespace {

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
