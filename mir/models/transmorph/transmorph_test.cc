// Tests the TransMorph models, and the configurations that models.json has for
// them.

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mir/models/registry.h"
#include "mir/models/transmorph/hyper_transmorph.h"
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

constexpr char kModels[][40] = {"transmorph",
                                "transmorph_affine",
                                "transmorph_tvf",
                                "transmorph_tvf_spr",
                                "hyper_transmorph_tvf",
                                "hyper_transmorph_tvf_spr",
                                "transmorph_tvf_autopet_atlas"};

bool Begins(const std::string& text, const std::string& with) {
  return text.rfind(with, 0) == 0;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A parameter of `model` that forward does not use: a remnant, the norms of
// levels that no decoder sees, and a hypernetwork's biases that are not added.
bool IsUnused(const std::string& model, const std::string& parameter) {
  if (model == "transmorph") return false;
  if (model == "transmorph_affine") {
    return Begins(parameter, "transformer.norm0.") ||
           Begins(parameter, "transformer.norm1.");
  }
  return Begins(parameter, "reg_head.") ||
         Contains(parameter, ".conv.linear_bias.") ||
         Contains(parameter, ".qkv.linear_bias.");
}

// The images that a tiny model was made for, or the smallest.
int64_t SideOf(const RegistrationModel& model, const std::string& name) {
  return name == "transmorph_affine" ? 32 : model.SizeMultiple()[0];
}

// A tiny model whose displacement is some voxels, not nearly zero.
std::shared_ptr<RegistrationModel> Tiny(
    const std::string& name, const std::vector<std::string>& overrides = {}) {
  at::manual_seed(3);
  auto model = BuildModel(name, *ModelConfig(name, "tiny", overrides)).value();
  for (const auto& item : model->named_parameters()) {
    if (Begins(item.key(), "reg_head") && Contains(item.key(), "weight")) {
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
    const int64_t side = SideOf(*model, name);
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
    const int64_t side = SideOf(*model, name);
    const at::Tensor moving =
        at::rand({1, 1, side, side, side}).requires_grad_();
    const Registration found =
        model->Register(moving, at::rand({1, 1, side, side, side}));
    EXPECT_EQ(found.weights.defined(), Contains(name, "_spr"));
    at::Tensor sum = found.regularized.square().sum();
    if (found.weights.defined()) sum = sum + found.weights.sum();
    sum.backward();
    EXPECT_GT(moving.grad().abs().max().item<double>(), 0);
    for (const auto& item : model->named_parameters()) {
      EXPECT_EQ(item.value().grad().defined(), !IsUnused(name, item.key()))
          << item.key();
    }
  }
}

TEST(TransMorphTest, RunsUnderAutocastAndConverted) {
  for (const char* name : kModels) {
    SCOPED_TRACE(name);
    const auto model = Tiny(name);
    const int64_t side = SideOf(*model, name);
    const at::Tensor moving = at::rand({1, 1, side, side, side}),
                     fixed = at::rand({1, 1, side, side, side});
    const at::Tensor expected =
        model->Register(moving, fixed).displacement.detach();
    const double epsilon = 7.9e-3;  // Of bfloat16.
    // A tiny hypernetwork normalises features of one channel, whose mean may
    // be far larger than what is left of them.
    const double loss = Begins(name, "hyper_") ? 3 : 1;
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
                RelativeL2Near(expected, 4 * loss * epsilon));
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
      {"transmorph_affine", "img_size=[32,32,24]", "img_size"},
      {"transmorph_affine", "depths=[1,1,1,1]", "num_heads"},
      {"hyper_transmorph_tvf", "swin_type=dswin", "swin_type"},
      {"hyper_transmorph_tvf_spr", "if_convskip=false", "if_convskip"},
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

TEST(HyperTransMorphTest, FindsAnotherFieldForAnotherHyperparameter) {
  for (const char* name :
       {"hyper_transmorph_tvf", "hyper_transmorph_tvf_spr"}) {
    SCOPED_TRACE(name);
    const auto model = Tiny(name);
    ASSERT_EQ(model->HyperparameterCount(), 1);
    const at::Tensor moving = at::rand({1, 1, 16, 16, 16}),
                     fixed = at::rand({1, 1, 16, 16, 16});
    const Registration usual = model->Register(moving, fixed);
    EXPECT_THAT(usual.hyperparameters, ElementsAre(0.3));
    model->SetHyperparameters({0.9});
    const Registration other = model->Register(moving, fixed);
    EXPECT_THAT(other.hyperparameters, ElementsAre(0.9));
    EXPECT_GT(
        (other.displacement - usual.displacement).abs().max().item<double>(),
        1e-3);
    EXPECT_THROW(model->SetHyperparameters({0.1, 0.2}), c10::ValueError);
  }
}

TEST(HyperTransMorphTest, RejectsRowsThatDiffer) {
  HyperTransMorphTVF model(
      TransMorphConfigFromJson("HyperTransMorphTVF",
                               *ModelConfig("hyper_transmorph_tvf", "tiny"),
                               TransMorphKind::kHyper)
          .value());
  const at::Tensor images = at::rand({2, 1, 16, 16, 16});
  EXPECT_THROW(
      model.Forward(images, images, at::tensor({0.2, 0.4}).view({2, 1})),
      c10::ValueError);
  const at::Tensor field =
      model.Forward(images, images, at::tensor({0.4, 0.4}).view({2, 1}))
          .displacement;
  EXPECT_THAT(field.sizes(), ElementsAre(2, 3, 16, 16, 16));
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
