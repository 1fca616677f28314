#include "mir/models/voxelmorph/vxm_dense.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "mir/geometry/warp.h"
#include "mir/models/manifest.h"
#include "mir/models/model_list.h"
#include "mir/precision/autocast.h"
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

VxmDenseConfig TinyConfig(std::vector<int64_t> image_size) {
  VxmDenseConfig config =
      *VxmDenseConfigFromJson(*ModelConfig("voxelmorph", "tiny"));
  config.image_size = std::move(image_size);
  return config;
}

// A tiny model whose displacement is some voxels, not nearly zero.
std::shared_ptr<VxmDense> MovingModel(std::vector<int64_t> image_size,
                                      bool warp_output = false) {
  at::manual_seed(11);
  VxmDenseConfig config = TinyConfig(std::move(image_size));
  config.warp_output = warp_output;
  auto model = std::make_shared<VxmDense>(config);
  for (const auto& item : model->named_parameters()) {
    if (item.key() == "flow.weight") item.value().detach().mul_(3e5);
  }
  return model;
}

TEST(VxmDenseTest, GivesADisplacementOfTheImagesSize) {
  VxmDense model3d(TinyConfig({32, 32, 32}));
  EXPECT_THAT(model3d.SizeMultiple(), ElementsAre(8, 8, 8));
  // Other sizes than the configuration's, and two pairs at once.
  const at::Tensor moving = at::rand({2, 1, 8, 16, 24});
  const Registration result =
      model3d.Register(moving, at::rand({2, 1, 8, 16, 24}));
  EXPECT_THAT(result.displacement.sizes(), ElementsAre(2, 3, 8, 16, 24));
  EXPECT_TRUE(result.regularized.is_same(result.displacement));

  VxmDense model2d(TinyConfig({32, 32}));
  EXPECT_THAT(model2d.SizeMultiple(), ElementsAre(8, 8));
  const at::Tensor image = at::rand({1, 1, 16, 8});
  EXPECT_THAT(model2d.Register(image, image).displacement.sizes(),
              ElementsAre(1, 2, 16, 8));
  EXPECT_FALSE(model2d.Forward(image, image).warped.defined());
}

TEST(VxmDenseTest, StartsNearTheIdentity) {
  at::manual_seed(7);
  VxmDense model{VxmDenseConfig()};
  const auto parameters = model.named_parameters();
  const at::Tensor weight = parameters["flow.weight"].detach();
  EXPECT_NEAR(weight.std().item<double>(), 1e-5, 1e-6);
  EXPECT_NEAR(weight.mean().item<double>(), 0, 1e-6);
  EXPECT_EQ(parameters["flow.bias"].abs().max().item<double>(), 0);
}

TEST(VxmDenseTest, GradientsReachTheImagesAndEveryParameter) {
  const auto model = MovingModel({8, 8, 8});
  const at::Tensor moving = at::rand({1, 1, 8, 8, 8}).requires_grad_();
  const at::Tensor fixed = at::rand({1, 1, 8, 8, 8}).requires_grad_();
  model->Register(moving, fixed).displacement.square().sum().backward();
  EXPECT_GT(moving.grad().abs().max().item<double>(), 0);
  EXPECT_GT(fixed.grad().abs().max().item<double>(), 0);
  for (const auto& item : model->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_GT(item.value().grad().abs().max().item<double>(), 0) << item.key();
  }
}

TEST(VxmDenseTest, WarpsInMirsConventionWhereAsked) {
  const auto model = MovingModel({8, 8, 8}, /*warp_output=*/true);
  const at::Tensor moving = at::rand({1, 1, 8, 8, 8});
  const VxmDense::Output output =
      model->Forward(moving, at::rand({1, 1, 8, 8, 8}));
  geometry::WarpOptions options;
  options.convention = geometry::WarpConvention::kMirCompatible;
  EXPECT_GT(output.displacement.abs().max().item<double>(), 0.1);
  EXPECT_THAT(output.warped,
              TensorEq(geometry::Warp(moving, output.displacement, options)));
}

TEST(VxmDenseTest, ListsTheIdentityGridWithoutHoldingIt) {
  VxmDenseConfig config = TinyConfig({16, 24});
  for (const bool warp_output : {false, true}) {
    config.warp_output = warp_output;
    const VxmDense model(config);
    const std::vector<ManifestEntry> manifest = Manifest(model);
    EXPECT_EQ(model.parameters().size(), 16u);  // Eight convolutions.
    EXPECT_TRUE(model.buffers().empty());
    EXPECT_THAT(model.DerivedKeys(), ElementsAre("transformer.grid"));
    ASSERT_EQ(manifest.size(), warp_output ? 17u : 16u);
    EXPECT_EQ(manifest[0].name, "unet_model.downarm.0.main.weight");
    EXPECT_EQ(manifest[0].kind, EntryKind::kParameter);
    EXPECT_EQ(manifest[0].dtype, at::kFloat);
    EXPECT_THAT(manifest[0].shape, ElementsAre(8, 2, 3, 3));
    if (warp_output) {
      EXPECT_EQ(manifest.back().name, "transformer.grid");
      EXPECT_EQ(manifest.back().kind, EntryKind::kDerived);
      EXPECT_THAT(manifest.back().shape, ElementsAre(1, 2, 16, 24));
    }
  }
}

struct DtypeCase {
  const char* name;
  at::ScalarType dtype;
  precision::Precision precision;
  double epsilon;  // The dtype's spacing at 1.
};

class VxmDenseDtypeTest : public ::testing::TestWithParam<DtypeCase> {};

TEST_P(VxmDenseDtypeTest, RunsUnderAutocastAndConverted) {
  const auto& [name, dtype, precision, epsilon] = GetParam();
  for (const std::vector<int64_t>& size :
       {std::vector<int64_t>{8, 8, 16}, std::vector<int64_t>{16, 24}}) {
    SCOPED_TRACE(size.size());
    const auto model = MovingModel(size, /*warp_output=*/true);
    std::vector<int64_t> shape = {1, 1};
    shape.insert(shape.end(), size.begin(), size.end());
    const at::Tensor moving = at::rand(shape), fixed = at::rand(shape);
    const VxmDense::Output expected = model->Forward(moving, fixed);

    {
      const precision::Autocast autocast(at::kCPU, precision);
      const VxmDense::Output output = model->Forward(moving, fixed);
      EXPECT_EQ(output.displacement.scalar_type(), dtype);
      EXPECT_EQ(output.warped.scalar_type(), at::kFloat);
      EXPECT_THAT(output.displacement,
                  RelativeL2Near(expected.displacement, 4 * epsilon));
      EXPECT_THAT(output.warped, RelativeL2Near(expected.warped, 4 * epsilon));
      output.displacement.sum().backward();
    }
    for (const at::Tensor& parameter : model->parameters()) {
      EXPECT_EQ(parameter.grad().scalar_type(), at::kFloat);
    }

    model->to(dtype);
    const VxmDense::Output output =
        model->Forward(moving.to(dtype), fixed.to(dtype));
    EXPECT_EQ(output.displacement.scalar_type(), dtype);
    EXPECT_EQ(output.warped.scalar_type(), dtype);
    EXPECT_THAT(output.displacement,
                RelativeL2Near(expected.displacement, 4 * epsilon));
    EXPECT_THAT(output.warped, RelativeL2Near(expected.warped, 4 * epsilon));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Dtypes, VxmDenseDtypeTest,
    ::testing::ValuesIn(std::vector<DtypeCase>{
        {"Float16", at::kHalf, precision::Precision::kFloat16, 9.8e-4},
        {"BFloat16", at::kBFloat16, precision::Precision::kBFloat16, 7.9e-3},
    }),
    [](const auto& info) { return info.param.name; });

// What Forward says of two images.
std::string ErrorOf(VxmDense& model, const at::Tensor& moving,
                    const at::Tensor& fixed) {
  try {
    model.Forward(moving, fixed);
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

TEST(VxmDenseTest, RejectsImagesThatDoNotFit) {
  VxmDense model(TinyConfig({8, 8, 8}));
  const at::Tensor image = at::zeros({1, 1, 8, 8, 8});
  for (const at::Tensor& wrong :
       {at::zeros({1, 2, 8, 8, 8}), at::zeros({1, 1, 8, 8}),
        at::zeros({8, 8, 8})}) {
    EXPECT_THAT(ErrorOf(model, wrong, wrong), HasSubstr("[N, 1, D, H, W]"));
  }
  EXPECT_THAT(ErrorOf(model, image, at::zeros({1, 1, 8, 8, 16})),
              HasSubstr("equal shape"));
  EXPECT_THAT(ErrorOf(model, image, at::zeros({2, 1, 8, 8, 8})),
              HasSubstr("equal shape"));
  for (const int64_t size : {0, 12}) {
    const at::Tensor wrong = at::zeros({1, 1, 8, size, 8});
    EXPECT_THAT(ErrorOf(model, wrong, wrong), HasSubstr("multiples of 8"));
  }
  EXPECT_THAT(ErrorOf(model, image.to(at::kInt), image.to(at::kInt)),
              HasSubstr("floating images"));
  EXPECT_THAT(ErrorOf(model, image, image.to(at::kHalf)),
              HasSubstr("of one dtype, not Float and Half"));
  EXPECT_THAT(ErrorOf(model, image.to(at::kHalf), image.to(at::kHalf)),
              HasSubstr("has Float weights"));
}

TEST(VxmDenseTest, RejectsAnImpossibleShape) {
  VxmDenseConfig config;
  config.image_size = {32};
  EXPECT_THROW(VxmDense{config}, c10::ValueError);
  config = VxmDenseConfig();
  config.decoder_features = config.encoder_features;
  EXPECT_THROW(VxmDense{config}, c10::ValueError);
}

TEST(VxmDenseConfigTest, ReadsMirsSettings) {
  const absl::StatusOr<VxmDenseConfig> config =
      VxmDenseConfigFromJson({{"img_size", {32, 48}},
                              {"nb_unet_features", {{4, 8}, {8, 8, 6}}},
                              {"gen_output", true}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->image_size, ElementsAre(32, 48));
  EXPECT_THAT(config->encoder_features, ElementsAre(4, 8));
  EXPECT_THAT(config->decoder_features, ElementsAre(8, 8, 6));
  EXPECT_TRUE(config->warp_output);

  const VxmDenseConfig defaults = *VxmDenseConfigFromJson(json::object());
  EXPECT_EQ(defaults.encoder_features, VxmDenseConfig().encoder_features);
  const VxmDenseConfig none =
      *VxmDenseConfigFromJson({{"nb_unet_features", nullptr}});
  EXPECT_THAT(none.encoder_features, ElementsAre(8, 32, 32, 32));
  EXPECT_THAT(none.decoder_features, ElementsAre(32, 32, 32, 32, 32, 8, 8));
}

TEST(VxmDenseConfigTest, OneNumberGrowsWithTheLevels) {
  const VxmDenseConfig config =
      *VxmDenseConfigFromJson({{"nb_unet_features", 5},
                               {"nb_unet_levels", 4},
                               {"unet_feat_mult", 1.5}});
  // 5, 7.5, 11.25, 16.875, rounded half to even as NumPy does.
  EXPECT_THAT(config.encoder_features, ElementsAre(5, 8, 11));
  EXPECT_THAT(config.decoder_features, ElementsAre(17, 11, 8, 5));
}

TEST(VxmDenseConfigTest, NamesTheSettingThatIsWrong) {
  const struct {
    json config;
    const char* message;
  } cases[] = {
      {json::array(), "configuration object"},
      {{{"image_size", {32, 32}}}, "did you mean img_size?"},
      {{{"img_size", 32}}, "img_size to be a list"},
      {{{"img_size", {32, "32"}}}, "img_size to be a list"},
      {{{"img_size", {32, -32}}}, "img_size to be a list"},
      {{{"img_size", {32, 32, 32, 32}}}, "2 or 3 entries, not 4"},
      {{{"nb_unet_features", "many"}}, "a pair of lists"},
      {{{"nb_unet_features", {{8, 8}}}}, "a pair of lists"},
      {{{"nb_unet_features", {{8, 8}, {8, 0, 8}}}}, "positive"},
      {{{"nb_unet_features", {{8, 8}, {8, 8}}}}, "more decoder entries"},
      {{{"nb_unet_features", {json::array(), {8}}}}, "at least one encoder"},
      {{{"nb_unet_features",
         {std::vector<int>(17, 8), std::vector<int>(18, 8)}}},
       "at most 16"},
      {{{"nb_unet_features", -1}}, "nb_unet_features to be positive"},
      {{{"nb_unet_features", 8}}, "nb_unet_levels to be a number"},
      {{{"nb_unet_features", 8}, {"nb_unet_levels", 1}}, "from 2 to 16"},
      {{{"nb_unet_levels", 4}}, "nb_unet_levels to be null"},
      {{{"nb_unet_features", 8},
        {"nb_unet_levels", 4},
        {"unet_feat_mult", 0.5}},
       "unet_feat_mult"},
      {{{"nb_unet_features", 1000},
        {"nb_unet_levels", 16},
        {"unet_feat_mult", 16}},
       "from 1 to 1048576"},
      {{{"use_probs", true}}, "use_probs"},
      {{{"gen_output", 1}}, "gen_output to be true or false"},
  };
  for (const auto& [config, message] : cases) {
    EXPECT_THAT(
        VxmDenseConfigFromJson(config),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
        << config;
  }
}

}  // namespace
}  // namespace mir::models
