#include "mir/models/swin/swin_transformer.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mir/models/config_reader.h"
#include "mir/models/swin/swin_config.h"
#include "mir/models/swin/windows.h"
#include "mir/precision/autocast.h"
#include "mir/precision/precision.h"
#include "mir/testing/status_matchers.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::models {
namespace {

using ::mir::testing::RelativeL2Near;
using ::mir::testing::StatusIs;
using ::mir::testing::TensorEq;
using ::nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

SwinConfig TinyConfig() {
  SwinConfig config;
  config.embed_dim = 8;
  config.depths = {2, 2};
  config.num_heads = {2, 4};
  config.window_size = {2, 3, 2};
  config.out_indices = {0, 1};
  config.in_chans = 1;
  return config;
}

TEST(WindowsTest, CutAndJoinAreInverse) {
  const Size3 window = {2, 3, 2}, shift = {1, 1, 1};
  const at::Tensor x = at::rand({2, 4, 5, 3, 2});
  const at::Tensor padded = PadAndShift(x, window, shift);
  EXPECT_THAT(padded.sizes(), ElementsAre(2, 4, 6, 4, 2));
  const at::Tensor windows = CutIntoWindows(padded, window);
  EXPECT_THAT(windows.sizes(), ElementsAre(2 * 2 * 2 * 2, 12, 2));
  // The first window holds what lies one token further on each axis.
  EXPECT_THAT(windows[0][0], TensorEq(x[0][1][1][1]));
  EXPECT_THAT(JoinWindows(windows, {4, 5, 3}, window, shift), TensorEq(x));
}

TEST(WindowsTest, TheMaskPartsWhatTheRollBroughtTogether) {
  // One axis in effect: tokens 0..3 rolled by one are 1 2 3 0 in two windows.
  const at::Tensor mask = ShiftMask({4, 1, 1}, {2, 1, 1}, {1, 1, 1}, at::kCPU);
  EXPECT_THAT(mask.sizes(), ElementsAre(2, 2, 2));
  EXPECT_THAT(mask[0], TensorEq(at::zeros({2, 2})));
  EXPECT_EQ(mask[1][0][0].item<float>(), 0);
  EXPECT_EQ(mask[1][0][1].item<float>(), -100);
  EXPECT_EQ(mask[1][1][0].item<float>(), -100);
}

TEST(WindowsTest, ARelativePositionHasOneIndex) {
  const at::Tensor index = RelativePositionIndex({2, 1, 2});
  // Tokens (0,0) (0,1) (1,0) (1,1): rows of a 3 x 3 table.
  const int64_t expected[] = {4, 3, 1, 0};
  for (int token = 0; token < 4; ++token) {
    EXPECT_EQ(index[0][token].item<int64_t>(), expected[token]);
  }
  EXPECT_EQ(index.max().item<int64_t>(), RelativePositions({2, 1, 2}) - 1);
}

TEST(SwinTransformerTest, GivesFeaturesOfEachLevelForABatch) {
  at::manual_seed(1);
  SwinTransformer model(TinyConfig());
  model.eval();
  const at::Tensor images = at::rand({2, 1, 16, 24, 8});
  const std::vector<at::Tensor> features = model.forward(images);
  ASSERT_EQ(features.size(), 2u);
  EXPECT_THAT(features[0].sizes(), ElementsAre(2, 8, 4, 6, 2));
  EXPECT_THAT(features[1].sizes(), ElementsAre(2, 16, 2, 3, 1));
  // Cases of a batch do not mix.
  const at::Tensor alone = model.forward(images.slice(0, 1))[1];
  EXPECT_THAT(alone.detach(),
              RelativeL2Near(features[1].slice(0, 1).detach(), 1e-6));
}

TEST(SwinTransformerTest, PadsSizesThatAreNoMultipleOfAPatch) {
  at::manual_seed(1);
  SwinTransformer model(TinyConfig());
  model.eval();
  const at::Tensor images = at::rand({1, 1, 13, 21, 6});
  const at::Tensor padded = at::constant_pad_nd(images, {0, 2, 0, 3, 0, 3});
  EXPECT_THAT(model.forward(images)[1].detach(),
              TensorEq(model.forward(padded)[1].detach()));
}

TEST(SwinTransformerTest, CheckpointingChangesNothing) {
  std::vector<at::Tensor> gradients[2], features[2];
  for (const bool use_checkpoint : {false, true}) {
    SwinConfig config = TinyConfig();
    config.use_checkpoint = use_checkpoint;
    config.drop_rate = 0.1;
    config.drop_path_rate = 0.5;
    at::manual_seed(1);
    SwinTransformer model(config);  // In training: with random draws.
    const at::Tensor images = at::rand({2, 1, 8, 8, 8}).requires_grad_();
    for (const at::Tensor& level : model.forward(images)) {
      features[use_checkpoint].push_back(level.detach());
      level.square().sum().backward({}, /*retain_graph=*/true);
    }
    gradients[use_checkpoint].push_back(images.grad());
    for (const at::Tensor& parameter : model.parameters()) {
      gradients[use_checkpoint].push_back(parameter.grad());
    }
  }
  for (size_t i = 0; i < features[0].size(); ++i) {
    EXPECT_THAT(features[1][i], TensorEq(features[0][i]));
  }
  ASSERT_EQ(gradients[0].size(), gradients[1].size());
  for (size_t i = 0; i < gradients[0].size(); ++i) {
    ASSERT_TRUE(gradients[0][i].defined()) << i;
    EXPECT_THAT(gradients[1][i], TensorEq(gradients[0][i])) << i;
  }
}

struct DtypeCase {
  const char* name;
  at::ScalarType dtype;
  precision::Precision precision;
  double epsilon;  // The dtype's spacing at 1.
};

class SwinTransformerDtypeTest : public ::testing::TestWithParam<DtypeCase> {};

TEST_P(SwinTransformerDtypeTest, RunsUnderAutocastAndConverted) {
  const auto& [name, dtype, precision, epsilon] = GetParam();
  SwinConfig config = TinyConfig();
  for (const bool ape : {false, true}) {
    config.ape = ape;
    config.spe = !ape;
    at::manual_seed(1);
    SwinTransformer model(config);
    model.eval();
    const at::Tensor images = at::rand({1, 1, 16, 8, 8});
    const at::Tensor expected = model.forward(images)[1].detach();
    {
      const precision::Autocast autocast(at::kCPU, precision);
      EXPECT_THAT(model.forward(images)[1].detach(),
                  RelativeL2Near(expected, 4 * epsilon));
    }
    model.to(dtype);
    const at::Tensor converted = model.forward(images.to(dtype))[1].detach();
    EXPECT_EQ(converted.scalar_type(), dtype);
    EXPECT_THAT(converted, RelativeL2Near(expected, 8 * epsilon));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Dtypes, SwinTransformerDtypeTest,
    ::testing::ValuesIn(std::vector<DtypeCase>{
        {"Float16", at::kHalf, precision::Precision::kFloat16, 9.8e-4},
        {"BFloat16", at::kBFloat16, precision::Precision::kBFloat16, 7.9e-3},
    }),
    [](const auto& info) { return info.param.name; });

TEST(SwinTransformerTest, RejectsImagesThatDoNotFit) {
  const SwinTransformer model(TinyConfig());
  const struct {
    at::Tensor images;
    const char* message;
  } cases[] = {
      {at::zeros({1, 2, 8, 8, 8}), "[N, 1, D, H, W]"},
      {at::zeros({1, 1, 8, 8}), "[N, 1, D, H, W]"},
      {at::zeros({1, 1, 8, 0, 8}), "[N, 1, D, H, W]"},
      {at::zeros({1, 1, 8, 8, 8}, at::kInt), "floating"},
      {at::zeros({1, 1, 8, 8, 12}), "multiples of 8, not [8, 8, 12]"},
  };
  for (const auto& [images, message] : cases) {
    try {
      model.forward(images);
      FAIL() << message;
    } catch (const c10::ValueError& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr(message));
    }
  }
}

TEST(SwinConfigTest, NamesTheFieldThatIsWrong) {
  const struct {
    json config;
    const char* message;
  } cases[] = {
      {{{"patch_size", {4, 4, 4}}}, "patch_size"},
      {{{"depths", json::array()}}, "depths"},
      {{{"embed_dim", 1 << 13}}, "embed_dim"},
      {{{"num_heads", {8, 8}}}, "num_heads"},
      {{{"num_heads", {8, 7, 8}}}, "at level 1 embed_dim gives 192"},
      {{{"window_size", {2, 2}}}, "window_size"},
      {{{"mlp_ratio", 0}}, "mlp_ratio"},
      {{{"pat_merg_rf", 2}}, "pat_merg_rf"},
      {{{"drop_rate", 1}}, "drop_rate"},
      {{{"drop_path_rate", 1}}, "drop_path_rate"},
      {{{"out_indices", {0, 3}}}, "out_indices"},
      {{{"out_indices", {1, 1}}}, "out_indices"},
      {{{"pretrain_img_size", {2}}}, "pretrain_img_size"},
      {{{"img_size", {32, 32}}}, "img_size"},
      {{{"dwin_kernel_size", {7, 5, 2}}}, "dwin_kernel_size"},
  };
  for (const auto& [config, message] : cases) {
    ConfigReader reader("Swin", config, SwinConfigKeys());
    SwinConfig result;
    ReadSwinConfig(reader, &result);
    EXPECT_THAT(reader.status(), StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr(message)));
  }
  SwinConfig config;
  config.depths = {};
  EXPECT_THROW(SwinTransformer{config}, c10::ValueError);
}

}  // namespace
}  // namespace mir::models
