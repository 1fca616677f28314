#include "mir/models/swin/def_swin_transformer.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mir/models/swin/make_backbone.h"
#include "mir/precision/autocast.h"
#include "mir/precision/precision.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::models {
namespace {

using ::mir::testing::RelativeL2Near;
using ::mir::testing::TensorEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

SwinConfig TinyConfig() {
  SwinConfig config;
  config.embed_dim = 8;
  config.depths = {2, 1};
  config.num_heads = {2, 4};
  config.window_size = {2, 3, 2};
  config.out_indices = {0, 1};
  config.dwin_kernel_size = {3, 3};
  return config;
}

TEST(DefSwinTransformerTest, GivesFeaturesOfBothStreamsForABatch) {
  at::manual_seed(1);
  DefSwinTransformerV2 model(TinyConfig());
  model.eval();
  const at::Tensor moving = at::rand({2, 1, 16, 24, 6}),
                   fixed = at::rand({2, 1, 16, 24, 6});  // 6: padded to 8.
  const auto features = model.forward(moving, fixed);
  ASSERT_EQ(features.size(), 2u);
  EXPECT_THAT(features[0].moving.sizes(), ElementsAre(2, 8, 4, 6, 2));
  EXPECT_THAT(features[1].fixed.sizes(), ElementsAre(2, 16, 2, 3, 1));
  const at::Tensor alone =
      model.Features(moving.slice(0, 1), fixed.slice(0, 1))[1];
  EXPECT_THAT(
      alone.detach(),
      RelativeL2Near(
          (features[1].moving + features[1].fixed).slice(0, 1).detach(), 1e-6));
}

TEST(DefSwinTransformerTest, CheckpointingChangesNothing) {
  std::vector<at::Tensor> results[2];
  for (const bool use_checkpoint : {false, true}) {
    SwinConfig config = TinyConfig();
    config.use_checkpoint = use_checkpoint;
    config.drop_path_rate = 0.5;
    at::manual_seed(1);
    DefSwinTransformer model(config);  // In training: with random draws.
    const at::Tensor moving = at::rand({2, 1, 8, 8, 8}).requires_grad_();
    const at::Tensor sum = model.Features(moving, at::rand({2, 1, 8, 8, 8}))[1];
    sum.square().sum().backward();
    results[use_checkpoint] = {sum.detach(), moving.grad()};
    for (const auto& item : model.named_parameters()) {
      // The norms of level 0 are not used here.
      if (item.value().grad().defined()) {
        results[use_checkpoint].push_back(item.value().grad());
      }
    }
    for (const at::Tensor& buffer : model.buffers()) {
      results[use_checkpoint].push_back(buffer);  // Running statistics.
    }
  }
  ASSERT_EQ(results[0].size(), results[1].size());
  for (size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_THAT(results[1][i], TensorEq(results[0][i])) << i;
  }
}

TEST(DefSwinTransformerTest, RunsInSixteenBits) {
  at::manual_seed(1);
  DefSwinTransformer model(TinyConfig());
  model.eval();
  const at::Tensor moving = at::rand({1, 1, 8, 8, 8}),
                   fixed = at::rand({1, 1, 8, 8, 8});
  const at::Tensor expected = model.Features(moving, fixed)[1].detach();
  const double epsilon = 7.9e-3;  // Of bfloat16.
  {
    const precision::Autocast autocast(at::kCPU,
                                       precision::Precision::kBFloat16);
    EXPECT_THAT(model.Features(moving, fixed)[1].detach(),
                RelativeL2Near(expected, 4 * epsilon));
  }
  model.to(at::kBFloat16);
  EXPECT_THAT(
      model.Features(moving.to(at::kBFloat16), fixed.to(at::kBFloat16))[1]
          .detach(),
      RelativeL2Near(expected, 8 * epsilon));
}

TEST(MakeBackboneTest, KnowsMirsNames) {
  for (const char* name : {"swin", "dswin", "dswinv2"}) {
    EXPECT_EQ(MakeBackbone(name, TinyConfig())->name(),
              name == std::string("swin")    ? "SwinTransformer"
              : name == std::string("dswin") ? "DefSwinTransformer"
                                             : "DefSwinTransformerV2");
  }
  const auto error = [](const std::string& name, const SwinConfig& config) {
    try {
      MakeBackbone(name, config);
    } catch (const c10::ValueError& e) {
      return std::string(e.what_without_backtrace());
    }
    return std::string();
  };
  EXPECT_THAT(error("dswin3", TinyConfig()),
              HasSubstr("swin_type must be swin, dswin or dswinv2"));
  SwinConfig config = TinyConfig();
  config.dwin_kernel_size = {3};
  EXPECT_THAT(error("dswin", config), HasSubstr("dwin_kernel_size must have"));
  config = TinyConfig();
  config.depths = {};
  EXPECT_THAT(error("dswinv2", config), HasSubstr("depths must be"));
}

TEST(DefSwinTransformerTest, RejectsImagesThatDoNotFit) {
  const DefSwinTransformer model(TinyConfig());
  const at::Tensor image = at::zeros({1, 1, 8, 8, 8});
  EXPECT_THROW(model.forward(image, at::zeros({1, 1, 8, 8, 16})),
               c10::ValueError);
  EXPECT_THROW(model.forward(at::zeros({1, 2, 8, 8, 8}), image),
               c10::ValueError);
}

}  // namespace
}  // namespace mir::models
