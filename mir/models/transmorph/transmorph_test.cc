// Tests the TransMorph models, and the configurations that models.json has for
// them.

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mir/models/registry.h"
#include "mir/models/transmorph/transmorph_affine.h"
#include "mir/models/transmorph/transmorph_config.h"
#include "mir/models/transmorph/transmorph_tvf.h"
#include "mir/precision/autocast.h"
#include "mir/precision/precision.h"
#include "mir/testing/status_matchers.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::models {
namespace {

using ::mir::testing::IsOk;
using ::mir::testing::RelativeL2Near;
using ::mir::testing::StatusIs;
using ::nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kModels[][40] = {"transmorph", "transmorph_tvf",
                                "transmorph_tvf_spr",
                                "transmorph_tvf_autopet_atlas"};

// A tiny model whose displacement is some voxels, not nearly zero.
std::shared_ptr<RegistrationModel> Tiny(
    const std::string& name, const std::vector<std::string>& overrides = {}) {
  at::manual_seed(3);
  auto model = BuildModel(name, *ModelConfig(name, "tiny", overrides)).value();
  for (const auto& item : model->named_parameters()) {
    if (item.key().rfind("reg_head", 0) == 0 &&
        item.key().find("weight") != std::string::npos) {
      item.value().detach().mul_(1e4);
    }
  }
  model->eval();
  return model;
}

TEST(TransMorphTest, EveryModelRegistersABatchOfPairs) {
  for (const char* name : kModels) {
    SCOPED_TRACE(name);
    const auto model = Tiny(name);
    int64_t parameters = 0;
    for (const auto& parameter : model->parameters()) {
      parameters += parameter.numel();
    }
    EXPECT_LT(parameters, 1000000);
    const int64_t side = model->SizeMultiple()[0];
    const at::Tensor moving = at::rand({2, 1, side, side, side}),
                     fixed = at::rand({2, 1, side, side, side});
    const at::Tensor both = model->Register(moving, fixed).displacement;
    EXPECT_THAT(both.sizes(), ElementsAre(2, 3, side, side, side));
    EXPECT_GT(both.abs().max().item<double>(), 0.05);
    EXPECT_THAT(model->Register(moving.slice(0, 1), fixed.slice(0, 1))
                    .displacement.detach(),
                RelativeL2Near(both.slice(0, 1).detach(), 1e-4));
  }
}

TEST(TransMorphTest, GradientsReachWhatForwardUses) {
  for (const char* name : kModels) {
    SCOPED_TRACE(name);
    const auto model = Tiny(name, {"use_checkpoint=true"});
    model->train();
    const int64_t side = model->SizeMultiple()[0];
    const at::Tensor moving =
        at::rand({1, 1, side, side, side}).requires_grad_();
    model->Register(moving, at::rand({1, 1, side, side, side}))
        .regularized.square()
        .sum()
        .backward();
    EXPECT_GT(moving.grad().abs().max().item<double>(), 0);
    for (const auto& item : model->named_parameters()) {
      // A remnant; and what only weights of the regularizer see.
      if ((item.key().rfind("reg_head.", 0) == 0 &&
           name != std::string("transmorph")) ||
          item.key().rfind("sigma_", 0) == 0) {
        EXPECT_FALSE(item.value().grad().defined()) << item.key();
        continue;
      }
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
    }
  }
}

TEST(TransMorphTest, RunsUnderAutocastAndConverted) {
  for (const char* name : kModels) {
    SCOPED_TRACE(name);
    const auto model = Tiny(name);
    const int64_t side = model->SizeMultiple()[0];
    const at::Tensor moving = at::rand({1, 1, side, side, side}),
                     fixed = at::rand({1, 1, side, side, side});
    const at::Tensor expected =
        model->Register(moving, fixed).displacement.detach();
    const double epsilon = 7.9e-3;  // Of bfloat16.
    {
      const precision::Autocast autocast(at::kCPU,
                                         precision::Precision::kBFloat16);
      const at::Tensor displacement =
          model->Register(moving, fixed).displacement.detach();
      EXPECT_THAT(displacement, RelativeL2Near(expected, 12 * epsilon));
    }
    model->to(at::kHalf);
    EXPECT_THAT(model->Register(moving.to(at::kHalf), fixed.to(at::kHalf))
                    .displacement.detach(),
                RelativeL2Near(expected, 4 * epsilon));
  }
}

TEST(TransMorphTest, RejectsImagesThatDoNotFit) {
  const auto model = Tiny("transmorph");
  const at::Tensor image = at::zeros({1, 1, 16, 16, 16});
  const struct {
    at::Tensor moving, fixed;
    const char* message;
  } cases[] = {
      {at::zeros({1, 2, 16, 16, 16}), at::zeros({1, 2, 16, 16, 16}),
       "[N, 1, D, H, W]"},
      {image, at::zeros({1, 1, 16, 16, 32}), "equal shape"},
      {at::zeros({1, 1, 16, 24, 16}), at::zeros({1, 1, 16, 24, 16}),
       "multiples of 16"},
      {image.to(at::kInt), image.to(at::kInt), "floating"},
      {image.to(at::kHalf), image.to(at::kHalf), "has Float weights"},
  };
  for (const auto& [moving, fixed, message] : cases) {
    try {
      model->Register(moving, fixed);
      FAIL() << message;
    } catch (const c10::ValueError& error) {
      EXPECT_THAT(error.what_without_backtrace(),
                  AllOf(HasSubstr("TransMorph"), HasSubstr(message)));
    }
  }
}

TEST(TransMorphConfigTest, TheDecoderTakesMirsConfigurationsOfThreeLevels) {
  const auto build = [](const std::string& name) {
    return TransMorphConfigFromJson("TransMorph",
                                    *ModelConfig("transmorph", name),
                                    TransMorphKind::kPlain)
        .status();
  };
  for (const char* name : {"default", "3lvl_atlas", "3lvl_dwin", "3lvl_autopet",
                           "3lvl_dwinv2", "ixi", "tiny"}) {
    EXPECT_THAT(build(name), IsOk()) << name;
  }
  for (const char* name : {"4lvl", "no_rel_pos", "sin_pos", "learnt_pos",
                           "no_conv_skip", "no_trans_skip", "no_skip", "large",
                           "small", "mir_tiny", "one_level"}) {
    EXPECT_THAT(build(name),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("wants depths to be three levels")))
        << name;
  }
}

TEST(TransMorphConfigTest, NamesTheFieldThatIsWrong) {
  const struct {
    const char* model;
    const char* override;
    const char* field;
  } cases[] = {
      {"transmorph", "embed_dim=0", "embed_dim"},
      {"transmorph", "embed_dim=15", "embed_dim"},
      {"transmorph", "num_heads=[5,5,5]", "num_heads"},
      {"transmorph", "out_indices=[0,1]", "out_indices"},
      {"transmorph", "patch_size=2", "patch_size"},
      {"transmorph", "in_chans=1", "in_chans"},
      {"transmorph", "if_convskip=false", "if_convskip"},
      {"transmorph", "reg_head_chan=0", "reg_head_chan"},
      {"transmorph", "SVF=1", "SVF"},
      {"transmorph", "SVF_steps=33", "SVF_steps"},
      {"transmorph", "swin_type=swine", "swin_type"},
      {"transmorph_tvf", "if_transskip=false", "if_transskip"},
      {"transmorph_tvf", "if_convskip=false", "if_convskip"},
      {"transmorph_tvf", "time_steps=0", "time_steps"},
      {"transmorph_tvf", "composition=sum", "composition"},
  };
  for (const auto& [model, override, field] : cases) {
    std::vector<std::string> overrides = {override};
    if (std::string(override) == "embed_dim=15") {
      overrides.push_back("num_heads=[1,1,1]");
    }
    EXPECT_THAT(
        BuildModel(model, *ModelConfig(model, "tiny", overrides)).status(),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 HasSubstr(std::string("wants ") + field)));
  }
}

TEST(TransMorphAffineTest, GivesFourSetsOfParametersForItsSize) {
  TransMorphConfig config;
  config.swin.embed_dim = 8;
  config.swin.depths = {1, 1, 1};
  config.swin.num_heads = {2, 2, 2};
  config.swin.img_size = {16, 32, 16};
  at::manual_seed(1);
  TransMorphAffine model(config);
  model.eval();
  const at::Tensor image = at::rand({2, 1, 16, 32, 16});
  const TransMorphAffine::Output output = model.Forward(image, image);
  EXPECT_THAT(output.rotation.sizes(), ElementsAre(2, 3));
  EXPECT_THAT(output.scale.sizes(), ElementsAre(2, 3));
  EXPECT_THAT(output.translation.sizes(), ElementsAre(2, 3));
  EXPECT_THAT(output.shear.sizes(), ElementsAre(2, 6));
  EXPECT_NEAR(output.scale.mean().item<double>(), 1, 0.05);
  EXPECT_THROW(
      model.Forward(at::rand({1, 1, 16, 16, 16}), at::rand({1, 1, 16, 16, 16})),
      c10::ValueError);
  config.swin.img_size = {16, 32, 8};
  EXPECT_THROW(TransMorphAffine{config}, c10::ValueError);
}

}  // namespace
}  // namespace mir::models
