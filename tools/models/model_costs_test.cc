#include "tools/models/model_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mir/models/model_list.h"
#include "mir/testing/status_matchers.h"

namespace mir::tools {
namespace {

using ::mir::precision::Precision;
using ::mir::testing::IsOkAndHolds;
using ::mir::testing::StatusIs;
using ::testing::HasSubstr;

TEST(ModelCostsTest, CountsParametersAsPublished) {
  EXPECT_THAT(CountParameters("voxelmorph", *models::ModelConfig("voxelmorph")),
              IsOkAndHolds(301411));
  EXPECT_THAT(
      CountParameters("voxelmorph", {{"img_size", "large"}}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("img_size")));
}

TEST(ModelCostsTest, ActivationsGrowWithTheVolumeAndWeightsDoNot) {
  const nlohmann::json config = *models::ModelConfig("voxelmorph", "tiny");
  const int64_t parameters = *CountParameters("voxelmorph", config);
  const absl::StatusOr<StepMemory> small =
      MeasureStep("voxelmorph", config, Precision::kFloat32, {16, 16, 16});
  const absl::StatusOr<StepMemory> large =
      MeasureStep("voxelmorph", config, Precision::kFloat32, {32, 32, 32});
  ASSERT_TRUE(small.ok() && large.ok());
  EXPECT_EQ(small->weights, 20.0 * parameters);
  EXPECT_EQ(large->weights, small->weights);
  // At least the images' skip connection and the last features, in float32.
  EXPECT_GT(large->activations, 32.0 * 32 * 32 * 4 * (2 + 8));
  EXPECT_NEAR(large->activations / small->activations, 8, 2);
}

TEST(ModelCostsTest, SixteenBitsHoldACopyOfTheWeights) {
  const nlohmann::json config = *models::ModelConfig("voxelmorph", "tiny");
  const int64_t parameters = *CountParameters("voxelmorph", config);
  const absl::StatusOr<StepMemory> memory =
      MeasureStep("voxelmorph", config, Precision::kBFloat16, {16, 16, 16});
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->weights, 22.0 * parameters);
}

TEST(ModelCostsTest, SaysWhatDoesNotFit) {
  EXPECT_THAT(
      MeasureStep("voxelmorph", *models::ModelConfig("voxelmorph", "tiny"),
                  Precision::kFloat32, {12, 16, 16}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("multiples")));
}

}  // namespace
}  // namespace mir::tools
