#include "mir/models/layers/weights.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <cmath>
#include <memory>

#include "mir/testing/tensor_matchers.h"

namespace mir::models {
namespace {

using ::mir::testing::TensorEq;
using ::testing::ElementsAre;

class Layer : public torch::nn::Module {
 public:
  explicit Layer(int64_t size) {
    weight = register_parameter("weight", NewWeight({size, size}));
    InitNormal(weight, 0, 1);
  }
  at::Tensor weight;
};

TEST(WeightsTest, AreDrawnWhereTheyHaveMemory) {
  at::manual_seed(1);
  const at::Tensor weight = NewWeight({64, 64});
  InitUniform(weight, 2, 3);
  EXPECT_GE(weight.min().item<double>(), 2);
  EXPECT_LE(weight.max().item<double>(), 3);
  EXPECT_NEAR(weight.mean().item<double>(), 2.5, 0.02);
  InitNormal(weight, 1, 0.5);
  EXPECT_NEAR(weight.mean().item<double>(), 1, 0.04);
  EXPECT_NEAR(weight.std().item<double>(), 0.5, 0.02);
  InitTruncatedNormal(weight, 0.02);
  EXPECT_NEAR(weight.std().item<double>(), 0.02, 0.001);
  EXPECT_NEAR(weight.mean().item<double>(), 0, 0.001);
  InitTruncatedNormal(weight, 2);  // Cut at one deviation: 0.54 of it is left.
  EXPECT_LE(weight.abs().max().item<double>(), 2);
  EXPECT_NEAR(weight.std().item<double>(), 2 * 0.5396, 0.03);
  InitConstant(weight, 7);
  EXPECT_THAT(weight, TensorEq(7 * at::ones({64, 64})));
  const at::Tensor bias = NewWeight({64});
  InitKaiming(weight, bias);
  EXPECT_LE(weight.abs().max().item<double>(), 1 / std::sqrt(64.0));
  EXPECT_LE(bias.abs().max().item<double>(), 1 / std::sqrt(64.0));
  EXPECT_GT(bias.abs().max().item<double>(), 0);
}

TEST(WeightsTest, ALayerLargerThanMemoryIsBuiltWithoutThem) {
  const int64_t size = 1 << 20;  // 4 TiB.
  const auto layer =
      BuildWithoutWeights([&] { return std::make_shared<Layer>(size); });
  EXPECT_THAT(layer->weight.sizes(), ElementsAre(size, size));
  EXPECT_EQ(layer->weight.scalar_type(), at::kFloat);
  EXPECT_TRUE(layer->weight.requires_grad());
  EXPECT_THROW(layer->weight.detach().zero_(), c10::Error);
}

TEST(WeightsTest, GetTheirMemoryLater) {
  const WithoutWeights scope;
  { const WithoutWeights inner; }
  Layer layer(4);
  EXPECT_EQ(layer.weight.storage().nbytes(), 0u);
  AllocateWeights(layer);
  layer.weight.detach().copy_(at::ones({4, 4}));
  EXPECT_THAT(layer.parameters()[0].detach(), TensorEq(at::ones({4, 4})));
  AllocateWeights(layer);  // Keeps what is there.
  EXPECT_THAT(layer.weight.detach(), TensorEq(at::ones({4, 4})));
}

TEST(WeightsTest, TheScopeEnds) {
  { const WithoutWeights scope; }
  EXPECT_NE(NewWeight({2}).storage().nbytes(), 0u);
}

}  // namespace
}  // namespace mir::models
