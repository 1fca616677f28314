#include "mir/models/vfa/vfa_model.h"

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
using ::nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Variant {
  const char* name;  // In models.json.
  bool spatial_weights, hyper;
};

constexpr Variant kVariants[] = {{"vfa", false, false},
                                 {"vfa_spr", true, false},
                                 {"hyper_vfa", false, true},
                                 {"hyper_vfa_spr", true, true}};

VfaConfig Tiny(const Variant& variant) {
  return *VfaConfigFromJson(*ModelConfig(variant.name, "tiny"),
                            variant.spatial_weights, variant.hyper);
}

class VfaTest : public ::testing::TestWithParam<Variant> {
 protected:
  VfaTest() { at::manual_seed(5); }
};

TEST_P(VfaTest, GivesFieldsAndGradientsToEveryParameter) {
  Vfa model(Tiny(GetParam()));
  EXPECT_THAT(model.SizeMultiple(), ElementsAre(4, 4, 4));
  const at::Tensor moving = at::rand({2, 1, 8, 12, 8}).requires_grad_();
  const at::Tensor fixed = at::rand({2, 1, 8, 12, 8});
  const Registration found = model.Register(moving, fixed);
  EXPECT_THAT(found.displacement.sizes(), ElementsAre(2, 3, 8, 12, 8));
  at::Tensor sum = found.displacement.square().sum();
  EXPECT_EQ(found.weights.defined(), GetParam().spatial_weights);
  if (found.weights.defined()) {
    EXPECT_THAT(found.weights.sizes(), ElementsAre(2, 1, 8, 12, 8));
    EXPECT_GT(found.weights.min().item<double>(), 0);
    EXPECT_LE(found.weights.max().item<double>(), 1);
    sum = sum + found.weights.square().sum();
  }
  EXPECT_EQ(static_cast<int64_t>(found.hyperparameters.size()),
            model.HyperparameterCount());
  sum.backward();
  EXPECT_GT(moving.grad().abs().max().item<double>(), 0);
  for (const auto& item : model.named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
  }
  int64_t parameters = 0;
  for (const at::Tensor& parameter : model.parameters()) {
    parameters += parameter.numel();
  }
  EXPECT_LE(parameters, 1'000'000);
}

TEST_P(VfaTest, RunsUnderAutocastAndConverted) {
  Vfa model(Tiny(GetParam()));
  const at::Tensor moving = at::rand({1, 1, 8, 8, 8});
  const at::Tensor fixed = at::rand({1, 1, 8, 8, 8});
  const Registration expected = model.Register(moving, fixed);
  {
    const precision::Autocast autocast(at::kCPU,
                                       precision::Precision::kBFloat16);
    const Registration found = model.Register(moving, fixed);
    EXPECT_EQ(found.displacement.scalar_type(), at::kFloat);
    EXPECT_THAT(found.displacement,
                RelativeL2Near(expected.displacement, 0.06));
    found.displacement.sum().backward();
  }
  for (const auto& [dtype, tolerance] :
       {std::pair(at::kHalf, 0.01), std::pair(at::kBFloat16, 0.06)}) {
    model.to(dtype);
    const Registration found =
        model.Register(moving.to(dtype), fixed.to(dtype));
    EXPECT_EQ(found.displacement.scalar_type(), at::kFloat);
    EXPECT_THAT(found.displacement,
                RelativeL2Near(expected.displacement, tolerance));
  }
}

INSTANTIATE_TEST_SUITE_P(All, VfaTest, ::testing::ValuesIn(kVariants),
                         [](const auto& info) { return info.param.name; });

TEST(VfaModelTest, RegistersTwoDimensionsToo) {
  for (const Variant& variant : {kVariants[0], kVariants[2]}) {
    VfaConfig config = Tiny(variant);
    config.image_size = {16, 16};
    Vfa model(config);
    const at::Tensor image = at::rand({1, 1, 8, 12});
    EXPECT_THAT(model.Register(image, image).displacement.sizes(),
                ElementsAre(1, 2, 8, 12));
  }
}

TEST(VfaModelTest, IntegratesAVelocityBothWays) {
  VfaConfig config = Tiny(kVariants[0]);
  config.integrate = true;
  config.warp_output = true;
  Vfa model(config);
  EXPECT_THAT(model.DerivedKeys(),
              ElementsAre("integrate.transformer.grid", "spatial_trans.grid"));
  const at::Tensor moving = at::rand({1, 1, 8, 8, 8});
  const Vfa::Output output = model.Forward(moving, moving);
  EXPECT_THAT(output.inverse.sizes(), ElementsAre(1, 3, 8, 8, 8));
  EXPECT_THAT(output.warped_moving.sizes(), ElementsAre(1, 1, 8, 8, 8));
  EXPECT_THAT(output.warped_fixed.sizes(), ElementsAre(1, 1, 8, 8, 8));
  EXPECT_EQ(output.levels.size(), 3u);
  EXPECT_GT(
      (output.displacement - output.levels.back()).abs().max().item<double>(),
      0);
}

TEST(VfaModelTest, SkipsTheFinestLevel) {
  VfaConfig config = Tiny(kVariants[0]);
  config.skip = true;
  config.integration_steps = 2;
  Vfa model(config);
  const at::Tensor image = at::rand({1, 1, 8, 8, 8});
  model.Register(image, image.flip(2)).displacement.square().sum().backward();
  EXPECT_FALSE(
      model.named_parameters()["decoder.project.0.weight"].grad().defined());
  EXPECT_TRUE(
      model.named_parameters()["decoder.project.1.weight"].grad().defined());
}

TEST(VfaModelTest, RejectsWhatItCannotTake) {
  Vfa model(Tiny(kVariants[0]));
  Vfa hyper(Tiny(kVariants[2]));
  const auto error = [](Vfa& vfa, const at::Tensor& image,
                        const at::Tensor& hyperparameters) -> std::string {
    try {
      vfa.Forward(image, image, hyperparameters);
    } catch (const c10::ValueError& thrown) {
      return thrown.what_without_backtrace();
    }
    return "no error";
  };
  const at::Tensor image = at::rand({2, 1, 8, 8, 8});
  EXPECT_THAT(error(model, at::zeros({1, 2, 8, 8, 8}), {}),
              HasSubstr("[N, 1, D, H, W]"));
  EXPECT_THAT(error(model, at::zeros({1, 1, 8, 8, 10}), {}),
              HasSubstr("multiples of 4"));
  EXPECT_THAT(error(model, at::zeros({1, 1, 8, 8, 4}), {}),
              HasSubstr("at least 8"));
  EXPECT_THAT(error(model, image, at::rand({1, 1})),
              HasSubstr("takes no hyperparameters"));
  EXPECT_THAT(error(hyper, image, {}), HasSubstr("wants hyperparameters"));
  EXPECT_THAT(error(hyper, image, at::rand({2, 1})),
              HasSubstr("rows that differ"));
}

TEST(VfaConfigTest, ReadsMirsSettings) {
  const VfaConfig config = *VfaConfigFromJson({{"img_size", {32, 48}},
                                               {"in_channels", 2},
                                               {"downsamples", 3},
                                               {"initialize", 0.5},
                                               {"skip", 1},
                                               {"int_steps", 2},
                                               {"affine", 0},
                                               {"SVF", true},
                                               {"SVF_steps", 5}},
                                              false, false);
  EXPECT_THAT(config.image_size, ElementsAre(32, 48));
  EXPECT_EQ(config.in_channels, 2);
  EXPECT_EQ(config.downsamples, 3);
  EXPECT_EQ(config.initialize, 0.5);
  EXPECT_TRUE(config.skip);
  EXPECT_EQ(config.integration_steps, 2);
  EXPECT_TRUE(config.integrate);
  EXPECT_EQ(config.velocity_steps, 5);
  const VfaConfig defaults = *VfaConfigFromJson(json::object(), false, false);
  EXPECT_EQ(defaults.max_channels, 64);
  EXPECT_THAT(Vfa(defaults).parameters(), ::testing::Not(IsEmpty()));
}

TEST(VfaConfigTest, NamesTheSettingThatIsWrong) {
  const struct {
    json config;
    bool spatial_weights, hyper;
    const char* message;
  } cases[] = {
      {json::array(), false, false, "configuration object"},
      {{{"image_size", {32, 32}}}, false, false, "did you mean img_size?"},
      {{{"img_size", {32, "32"}}}, false, false, "img_size to be a list"},
      {{{"img_size", {32}}}, false, false, "2 or 3 entries, not 1"},
      {{{"img_size", {32, 32, -1}}}, false, false, "an entry of img_size"},
      {{{"downsamples", 0}}, false, false, "downsamples must be from 1 to 8"},
      {{{"downsamples", 2.5}}, false, false, "downsamples to be a whole"},
      {{{"start_channels", 0}}, false, false, "start_channels must be"},
      {{{"matching_channels", 0}}, false, false, "matching_channels must be"},
      {{{"max_channels", 0}}, false, false, "max_channels must be"},
      {{{"max_channels", 8}}, true, false, "max_channels must be at least"},
      {{{"img_size", {32, 32}}}, true, false, "img_size must have 3"},
      {{{"affine", 1}}, false, false, "affine to be 0"},
      {{{"skip", 2}}, false, false, "skip to be 0 or 1"},
      {{{"initialize", "small"}}, false, false, "initialize to be a number"},
      {{{"SVF", 1}}, false, false, "SVF to be true or false"},
      {{{"SVF", true}}, false, true, "SVF must be false"},
      {{{"return_full", true}}, false, false, "return_full must be false"},
  };
  for (const auto& [config, spatial_weights, hyper, message] : cases) {
    EXPECT_THAT(
        VfaConfigFromJson(config, spatial_weights, hyper),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
        << config;
  }
}

}  // namespace
}  // namespace mir::models
