#include "mir/models/layers/hyper.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mir/precision/autocast.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::models {
namespace {

using ::mir::testing::RelativeL2Near;
using ::mir::testing::TensorEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

HyperConvolutionOptions Options(int64_t ndims = 3) {
  HyperConvolutionOptions options;
  options.convolution.ndims = ndims;
  options.convolution.in_channels = 2;
  options.convolution.out_channels = 3;
  options.units = 4;
  return options;
}

std::vector<std::string> Names(const torch::nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& item : module.named_parameters()) {
    names.push_back(item.key());
  }
  return names;
}

TEST(HyperEmbeddingTest, IsLinearLayersWithReLUs) {
  HyperEmbedding embedding(/*hyperparameters=*/2, /*units=*/3, /*layers=*/2);
  EXPECT_THAT(Names(embedding), ElementsAre("fcs.0.weight", "fcs.0.bias",
                                            "fcs.1.weight", "fcs.1.bias"));
  const auto parameters = embedding.named_parameters();
  parameters["fcs.0.weight"].detach().copy_(
      at::tensor({1., 0., 0., 1., -1., -1.}).view({3, 2}));
  parameters["fcs.0.bias"].detach().zero_();
  parameters["fcs.1.weight"].detach().fill_(1);
  parameters["fcs.1.bias"].detach().copy_(at::tensor({0., 0.5, -9.}));
  // The first layer gives (0.25, 0.5, 0).
  const at::Tensor row = at::tensor({0.25f, 0.5f}).view({1, 2});
  const at::Tensor expected = at::tensor({0.75f, 1.25f, 0.f}).view({1, 3});
  EXPECT_THAT(embedding.forward(row), TensorEq(expected));
  EXPECT_THAT(embedding.forward(row.expand({4, 2})), TensorEq(expected));
}

TEST(HyperEmbeddingTest, RejectsRowsThatDifferAndOtherShapes) {
  const HyperEmbedding embedding(1, 4);
  const auto error = [&](const at::Tensor& hyperparameters) -> std::string {
    try {
      embedding.forward(hyperparameters);
    } catch (const c10::ValueError& thrown) {
      return thrown.what_without_backtrace();
    }
    return "no error";
  };
  EXPECT_THAT(error(at::tensor({0.1, 0.2}).view({2, 1})),
              HasSubstr("must be equal, not 2 rows that differ"));
  for (const at::Tensor& wrong :
       {at::zeros({1}), at::zeros({1, 2}), at::zeros({0, 1}),
        at::zeros({1, 1}, at::kInt)}) {
    EXPECT_THAT(error(wrong), HasSubstr("[1, 1] or [N, 1]"));
  }
  EXPECT_THROW(HyperEmbedding(0, 4), c10::ValueError);
  EXPECT_THROW(HyperEmbedding(1, 4, 0), c10::ValueError);
}

TEST(HyperConvolutionTest, ConvolvesWithTheKernelThatTheEmbeddingGives) {
  for (const bool add_bias : {true, false}) {
    HyperConvolutionOptions options = Options();
    options.add_bias = add_bias;
    const HyperConvolution layer(options);
    EXPECT_THAT(Names(layer),
                ElementsAre("linear_conv.weight", "linear_bias.weight"));
    const auto parameters = layer.named_parameters();
    // The second unit alone: its column is the kernel, and the bias.
    const at::Tensor embedding = at::tensor({0.f, 1.f, 0.f, 0.f}).view({1, 4});
    const at::Tensor kernel = parameters["linear_conv.weight"].select(1, 1);
    const at::Tensor bias = parameters["linear_bias.weight"].select(1, 1);
    const at::Tensor x = at::rand({2, 2, 4, 5, 6});
    EXPECT_THAT(layer.forward(x, embedding),
                RelativeL2Near(at::conv3d(x, kernel.reshape({3, 2, 3, 3, 3}),
                                          add_bias ? bias : at::zeros({3}),
                                          /*stride=*/1, /*padding=*/1),
                               1e-6));
  }
  const HyperConvolution flat(Options(/*ndims=*/2));
  EXPECT_THAT(flat.forward(at::rand({2, 2, 4, 5}), at::ones({1, 4})).sizes(),
              ElementsAre(2, 3, 4, 5));
}

TEST(HyperConvolutionTest, StartsAsPyTorchsLinearOrNearZero) {
  at::manual_seed(5);
  HyperConvolutionOptions options = Options();
  const auto deviation = [](const HyperConvolution& layer) {
    return layer.named_parameters()["linear_conv.weight"]
        .detach()
        .std()
        .item<double>();
  };
  // Uniform within 1 / sqrt(4).
  EXPECT_NEAR(deviation(HyperConvolution(options)), 0.5 / std::sqrt(3), 0.02);
  options.near_zero = true;
  EXPECT_NEAR(deviation(HyperConvolution(options)), 1e-5, 1e-6);
  options.convolution.stride = 0;
  EXPECT_THROW(HyperConvolution{options}, c10::ValueError);
}

TEST(HyperLinearTest, MultipliesByTheWeightThatTheEmbeddingGives) {
  for (const bool add_bias : {true, false}) {
    const HyperLinear layer(/*inputs=*/2, /*outputs=*/1, /*units=*/2, add_bias);
    EXPECT_THAT(Names(layer),
                ElementsAre("linear_wts.weight", "linear_bias.weight"));
    const auto parameters = layer.named_parameters();
    parameters["linear_wts.weight"].detach().copy_(
        at::tensor({1., 2., 3., 4.}).view({2, 2}));
    parameters["linear_bias.weight"].detach().copy_(
        at::tensor({10., 20.}).view({1, 2}));
    // The weight is (1 + 2, 3 + 4), the bias 30.
    const at::Tensor y = layer.forward(at::tensor({1.f, 0.5f}).view({1, 1, 2}),
                                       at::ones({1, 2}));
    EXPECT_THAT(y.sizes(), ElementsAre(1, 1, 1));
    EXPECT_EQ(y.item<float>(), 6.5 + (add_bias ? 30 : 0));
  }
}

TEST(HyperLayersTest, RunIn16Bits) {
  HyperEmbedding embedding(1, 4);
  HyperConvolution convolution(Options());
  const at::Tensor x = at::rand({1, 2, 4, 4, 4});
  const at::Tensor hyper = at::rand({1, 1});
  const at::Tensor expected = convolution.forward(x, embedding.forward(hyper));
  {
    const precision::Autocast autocast(at::kCPU,
                                       precision::Precision::kBFloat16);
    const at::Tensor y = convolution.forward(x, embedding.forward(hyper));
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    EXPECT_THAT(y, RelativeL2Near(expected, 4 * 7.9e-3));
  }
  embedding.to(at::kHalf);
  convolution.to(at::kHalf);
  const at::Tensor y =
      convolution.forward(x.to(at::kHalf), embedding.forward(hyper));
  EXPECT_EQ(y.scalar_type(), at::kHalf);
  EXPECT_THAT(y, RelativeL2Near(expected, 4 * 9.8e-4));
}

}  // namespace
}  // namespace mir::models
