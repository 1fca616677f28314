#include "mir/models/vfa/trans_vfa.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "mir/models/model_list.h"
#include "mir/precision/autocast.h"
#include "mir/testing/status_matchers.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::models {
namespace {

using ::mir::testing::RelativeL2Near;
using ::mir::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TransVfaConfig Tiny(const std::string& swin_type) {
  return *TransVfaConfigFromJson(
      *ModelConfig("trans_vfa", "tiny", {"swin_type=" + swin_type}));
}

class TransVfaTest : public ::testing::TestWithParam<const char*> {
 protected:
  TransVfaTest() { at::manual_seed(5); }
};

TEST_P(TransVfaTest, GivesABatchOfFieldsAndGradientsToEveryParameter) {
  TransVfaConfig config = Tiny(GetParam());
  config.swin.use_checkpoint = true;
  TransVfa model(config);
  model.eval();
  EXPECT_THAT(model.SizeMultiple(), ElementsAre(16, 16, 16));
  const at::Tensor moving = at::rand({2, 1, 32, 32, 32}).requires_grad_();
  const at::Tensor fixed = at::rand({2, 1, 32, 32, 32});
  const at::Tensor field = model.Register(moving, fixed).displacement;
  EXPECT_THAT(field.sizes(), ElementsAre(2, 3, 32, 32, 32));
  EXPECT_THAT(model.Forward(moving.slice(0, 1), fixed.slice(0, 1)).detach(),
              RelativeL2Near(field.slice(0, 1).detach(), 1e-4));
  field.square().sum().backward();
  EXPECT_GT(moving.grad().abs().max().item<double>(), 0);
  int64_t parameters = 0;
  for (const auto& item : model.named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    parameters += item.value().numel();
  }
  EXPECT_LE(parameters, 1'000'000);
}

TEST_P(TransVfaTest, RunsUnderAutocastAndConverted) {
  TransVfa model(Tiny(GetParam()));
  model.eval();
  const at::Tensor moving = at::rand({1, 1, 32, 32, 32});
  const at::Tensor fixed = at::rand({1, 1, 32, 32, 32});
  const at::Tensor expected = model.Forward(moving, fixed).detach();
  {
    const precision::Autocast autocast(at::kCPU,
                                       precision::Precision::kBFloat16);
    const at::Tensor found = model.Forward(moving, fixed).detach();
    EXPECT_EQ(found.scalar_type(), at::kFloat);
    EXPECT_THAT(found, RelativeL2Near(expected, 0.1));
  }
  model.to(at::kHalf);
  const at::Tensor found =
      model.Forward(moving.to(at::kHalf), fixed.to(at::kHalf)).detach();
  EXPECT_EQ(found.scalar_type(), at::kFloat);
  EXPECT_THAT(found, RelativeL2Near(expected, 0.02));
}

INSTANTIATE_TEST_SUITE_P(All, TransVfaTest,
                         ::testing::Values("swin", "dswin", "dswinv2"),
                         [](const auto& info) { return info.param; });

TEST(TransVfaModelTest, RejectsImagesThatDoNotFit) {
  TransVfa model(Tiny("swin"));
  const auto error = [&](const at::Tensor& image) -> std::string {
    try {
      model.Forward(image, image);
    } catch (const c10::ValueError& thrown) {
      return thrown.what_without_backtrace();
    }
    return "no error";
  };
  EXPECT_THAT(error(at::zeros({1, 2, 32, 32, 32})),
              HasSubstr("[N, 1, D, H, W]"));
  EXPECT_THAT(error(at::zeros({1, 1, 32, 32, 40})),
              HasSubstr("multiples of 16"));
  EXPECT_THAT(error(at::zeros({1, 1, 32, 32, 16})), HasSubstr("at least 32"));
  EXPECT_THAT(error(at::zeros({1, 1, 32, 32, 32}, at::kHalf)),
              HasSubstr("Float weights"));
}

TEST(TransVfaConfigTest, NamesTheFieldThatIsWrong) {
  const struct {
    const char* override;
    const char* field;
  } cases[] = {
      {"depths=[1,1]", "out_indices"},
      {"depths=[1,1,1,1]", "num_heads"},
      {"out_indices=[0,1]", "out_indices"},
      {"patch_size=2", "patch_size"},
      {"embed_dim=0", "embed_dim"},
      {"start_channels=0", "start_channels"},
      {"matching_channels=x", "matching_channels"},
      {"max_channels=1.5", "max_channels"},
      {"initialize=x", "initialize"},
      {"skip=2", "skip"},
      {"int_steps=17", "int_steps"},
      {"swin_type=swine", "swin_type"},
      {"img_size=[32,32]", "img_size"},
  };
  for (const auto& [override, field] : cases) {
    EXPECT_THAT(
        TransVfaConfigFromJson(*ModelConfig("trans_vfa", "tiny", {override}))
            .status(),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 HasSubstr(std::string("TransVFA wants ") + field)))
        << override;
  }
  TransVfaConfig config;
  config.start_channels = 0;
  EXPECT_THROW(TransVfa{config}, c10::ValueError);
}

}  // namespace
}  // namespace mir::models
