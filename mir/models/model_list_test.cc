#include "mir/models/model_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "mir/testing/status_matchers.h"

namespace mir::models {
namespace {

using ::mir::testing::IsOkAndHolds;
using ::mir::testing::StatusIs;
using ::nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

TEST(ModelListTest, EveryModelSaysHowItIsTrainedAndHasTheTwoFixedNames) {
  ASSERT_FALSE(ModelList().empty());
  for (const ModelDescription& model : ModelList()) {
    SCOPED_TRACE(model.name);
    EXPECT_FALSE(model.summary.empty());
    EXPECT_THAT(model.binary, AllOf(StartsWith("//mir/models/"),
                                    HasSubstr(":train_" + model.name)));
    EXPECT_THAT(model.configurations, Contains("default"));
    EXPECT_THAT(model.configurations, Contains("tiny"));
    EXPECT_FALSE(model.training.similarity.empty());
    EXPECT_FALSE(model.training.regularizer.empty());
    EXPECT_GT(model.training.learning_rate, 0);
    // All configurations have the same keys, so that overrides fit each.
    const json keys = *ModelConfig(model.name);
    for (const std::string& configuration : model.configurations) {
      const json config = *ModelConfig(model.name, configuration);
      EXPECT_EQ(config.size(), keys.size()) << configuration;
      for (const auto& item : keys.items()) {
        EXPECT_TRUE(config.contains(item.key())) << item.key();
      }
    }
  }
}

TEST(ModelListTest, FindsAModelByName) {
  EXPECT_THAT(ModelNames(), Contains("voxelmorph"));
  const absl::StatusOr<ModelDescription> model = FindModel("voxelmorph");
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->binary, "//mir/models/voxelmorph:train_voxelmorph");
  EXPECT_EQ(model->training.similarity, "ncc");
  EXPECT_EQ(model->training.regularizer, "l2");
}

TEST(ModelListTest, AnUnknownModelGetsTheNearest) {
  EXPECT_THAT(FindModel("voxelmorf"),
              StatusIs(kInvalid, AllOf(HasSubstr("no model 'voxelmorf'"),
                                       HasSubstr("did you mean voxelmorph?"))));
  EXPECT_THAT(ModelConfig("xyz"),
              StatusIs(kInvalid, AllOf(HasSubstr("there are: "),
                                       HasSubstr("voxelmorph"))));
}

TEST(ModelConfigTest, NamedConfigurationsHoldMirsNumbers) {
  EXPECT_THAT(ModelConfig("voxelmorph"), IsOkAndHolds(json::parse(R"({
                "img_size": [160, 192, 224],
                "nb_unet_features":
                    [[16, 32, 32, 32], [32, 32, 32, 32, 32, 16, 16]],
                "nb_unet_levels": null, "unet_feat_mult": 1,
                "use_probs": false, "gen_output": false})")));
  EXPECT_EQ((*ModelConfig("voxelmorph", "1"))["nb_unet_features"][0],
            json({8, 32, 32, 32}));
  EXPECT_EQ((*ModelConfig("voxelmorph", "bj"))["nb_unet_features"][1],
            json({128, 128, 96, 64, 32, 32}));
}

TEST(ModelConfigTest, ANamedConfigurationReplacesKeysOfTheDefault) {
  const json tiny = *ModelConfig("transmorph", "tiny");
  const json normal = *ModelConfig("transmorph");
  EXPECT_NE(tiny["embed_dim"], normal["embed_dim"]);
  EXPECT_EQ(tiny["patch_size"], normal["patch_size"]);
}

TEST(ModelConfigTest, AnUnknownConfigurationGetsTheNearest) {
  EXPECT_THAT(ModelConfig("voxelmorph", "tinny"),
              StatusIs(kInvalid, AllOf(HasSubstr("did you mean tiny?"),
                                       HasSubstr("1, bj, default, tiny"))));
}

TEST(ModelConfigTest, OverridesAreJsonOrText) {
  const absl::StatusOr<json> config =
      ModelConfig("voxelmorph", "tiny",
                  {"img_size=[64, 64]", "gen_output=true", "unet_feat_mult=2",
                   "unet_feat_mult=3", "nb_unet_features=wide=deep"});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ((*config)["img_size"], json({64, 64}));
  EXPECT_EQ((*config)["gen_output"], true);
  EXPECT_EQ((*config)["unet_feat_mult"], 3);
  EXPECT_EQ((*config)["nb_unet_features"], "wide=deep");
}

TEST(ModelConfigTest, RejectsUnknownKeysAndOverridesWithoutAKey) {
  EXPECT_THAT(ModelConfig("voxelmorph", "tiny", {"image_size=[64,64]"}),
              StatusIs(kInvalid, AllOf(HasSubstr("'image_size'"),
                                       HasSubstr("did you mean img_size?"))));
  for (const char* override : {"img_size", "=3", ""}) {
    EXPECT_THAT(ModelConfig("voxelmorph", "tiny", {override}),
                StatusIs(kInvalid, HasSubstr("KEY=VALUE")));
  }
}

TEST(ModelConfigTest, AFileReplacesKeysOfTheDefault) {
  const std::string path =
      WriteFile("config.json", R"({"img_size": [32, 48, 64]})");
  json expected = *ModelConfig("voxelmorph");
  expected["img_size"] = {32, 48, 64};
  EXPECT_THAT(ModelConfig("voxelmorph", path), IsOkAndHolds(expected));
}

TEST(ModelConfigTest, NamesTheFileThatIsWrong) {
  EXPECT_THAT(ModelConfig("voxelmorph", "/nowhere/config.json"),
              StatusIs(kInvalid, HasSubstr("cannot read the configuration "
                                           "file /nowhere/config.json")));
  for (const char* text : {"", "[1, 2]", "{\"img_size\": [32"}) {
    const std::string path = WriteFile("bad.json", text);
    EXPECT_THAT(ModelConfig("voxelmorph", path),
                StatusIs(kInvalid,
                         AllOf(HasSubstr(path), HasSubstr("one JSON object"))));
  }
  EXPECT_THAT(
      ModelConfig("voxelmorph", WriteFile("key.json", R"({"imgsize": [32]})")),
      StatusIs(kInvalid, HasSubstr("did you mean img_size?")));
}

}  // namespace
}  // namespace mir::models
