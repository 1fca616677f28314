#include "mir/data/atlas_source.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "mir/data/nifti_test_util.h"
#include "mir/testing/status_matchers.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::data {
namespace {

using mir::testing::IsOk;
using mir::testing::StatusIs;
using mir::testing::TensorEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 60x50x40 voxels of 1 mm with a box of two labels in the middle, stored with
// the first axis to the left.
AtlasOptions SmallAtlas() {
  RawNifti raw;
  raw.size = {60, 50, 40};
  raw.datatype = 4;
  raw.srow = {-1, 0, 0, 30, 0, 1, 0, -25, 0, 0, 1, -20};
  RawNifti labels = raw;
  for (int k = 0; k < 40; ++k) {
    for (int j = 0; j < 50; ++j) {
      for (int i = 0; i < 60; ++i) {
        const bool inside =
            i >= 20 && i < 40 && j >= 15 && j < 35 && k >= 10 && k < 30;
        labels.voxels.push_back(inside ? (i < 30 ? 1 : 2) : 0);
        raw.voxels.push_back(inside ? (i < 30 ? 500 : 1000) : 0);
      }
    }
  }
  AtlasOptions options;
  options.image = WriteTestFile("atlas.nii", raw.Bytes());
  options.labels = WriteTestFile("labels.nii", labels.Bytes());
  options.count = 3;
  options.deformation = 0.05;
  return options;
}

TEST(AtlasSourceTest, CutsToTheLabelsAndTheirMargin) {
  const auto source = AtlasSource::Make(SmallAtlas());
  ASSERT_THAT(source, IsOk());
  const Grid& grid = (*source)->image().grid;
  // Eight voxels around 20x20x20; RAS, so counted from the left side's end.
  EXPECT_THAT(grid.size, ElementsAre(36, 36, 36));
  EXPECT_EQ(Orientation(grid), "RAS");
  EXPECT_THAT(Apply(grid.to_world, {8, 8, 8}), ElementsAre(-9, -10, -10));
  EXPECT_EQ((*source)->image().voxels[8][8][8].item<float>(), 1);
  EXPECT_EQ((*source)->image().voxels[27][8][8].item<float>(), .5);
  EXPECT_EQ((*source)->image().voxels[7][8][8].item<float>(), 0);
}

TEST(AtlasSourceTest, ResamplesToTheSpacing) {
  AtlasOptions options = SmallAtlas();
  options.prepare.spacing_mm = 2;
  const auto source = AtlasSource::Make(options);
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT((*source)->image().grid.size, ElementsAre(18, 18, 18));
  EXPECT_THAT(SpacingMm((*source)->image().grid), ElementsAre(2, 2, 2));
  const auto pair = (*source)->Get(0, 0);
  ASSERT_THAT(pair, IsOk());
  EXPECT_EQ(pair->fixed.sizes(), (std::vector<int64_t>{1, 18, 18, 18}));
}

TEST(AtlasSourceTest, BothImagesAreDeformedCopiesWithTheirLabels) {
  const auto source = AtlasSource::Make(SmallAtlas());
  ASSERT_THAT(source, IsOk());
  const auto pair = (*source)->Get(0, 0);
  ASSERT_THAT(pair, IsOk());
  EXPECT_FALSE(pair->fixed.equal(pair->moving));
  EXPECT_FALSE(pair->fixed_labels.equal(pair->moving_labels));
  for (const auto& [image, labels] :
       {std::make_pair(pair->fixed, pair->fixed_labels),
        std::make_pair(pair->moving, pair->moving_labels)}) {
    EXPECT_EQ(image.sizes(), (std::vector<int64_t>{1, 36, 36, 36}));
    EXPECT_EQ(labels.sizes(), image.sizes());
    EXPECT_EQ(labels.scalar_type(), at::kInt);
    EXPECT_EQ(labels.max().item<int>(), 2);
    EXPECT_FALSE(image.select(0, 0).equal((*source)->image().voxels));
    // They moved alike: labels lie where the grey values are theirs.
    const at::Tensor wanted = labels.to(at::kFloat) * 0.5;
    EXPECT_LT((image - wanted).abs().mean().item<float>(), 0.05);
  }
}

TEST(AtlasSourceTest, PairsAreFunctionsOfSeedEpochAndIndex) {
  AtlasOptions options = SmallAtlas();
  const auto source = AtlasSource::Make(options);
  ASSERT_THAT(source, IsOk());
  const auto validation = (*source)->Validation(2);
  ASSERT_THAT(validation, IsOk());
  EXPECT_EQ((*source)->size(), 3);
  EXPECT_EQ((*validation)->size(), 2);
  const at::Tensor first = (*source)->Get(1, 2)->moving;
  EXPECT_THAT((*source)->Get(1, 2)->moving, TensorEq(first));
  EXPECT_FALSE((*source)->Get(2, 1)->moving.equal(first));
  EXPECT_FALSE(
      (*validation)->Get(0, 1)->moving.equal((*source)->Get(0, 1)->moving));
  EXPECT_THAT((*validation)->Get(5, 1)->moving,
              TensorEq((*validation)->Get(0, 1)->moving));
  options.seed = 1;
  EXPECT_FALSE((*AtlasSource::Make(options))->Get(1, 2)->moving.equal(first));
}

TEST(AtlasSourceTest, WorksWithoutLabels) {
  AtlasOptions options = SmallAtlas();
  options.labels.clear();
  const auto source = AtlasSource::Make(options);
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT((*source)->image().grid.size, ElementsAre(36, 36, 36));
  EXPECT_FALSE((*source)->Get(0, 0)->fixed_labels.defined());
}

TEST(AtlasSourceTest, NamesWhatIsWrong) {
  const AtlasOptions good = SmallAtlas();
  AtlasOptions options = good;
  options.image = "absent.nii";
  EXPECT_THAT(AtlasSource::Make(options),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent.nii")));
  RawNifti other;
  options = good;
  options.labels = WriteTestFile("other.nii", other.Bytes());
  EXPECT_THAT(AtlasSource::Make(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("other.nii is 2x3x4")));
  options = good;
  options.count = 0;
  EXPECT_THAT(AtlasSource::Make(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("at least 1 pair")));
  options = good;
  options.deformation = -1;
  EXPECT_THAT(
      AtlasSource::Make(options),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("deformation")));
  const auto source = AtlasSource::Make(good);
  EXPECT_THAT((*source)->Validation(0),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("got 0")));
  EXPECT_THAT((*source)->Get(0, 3),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("no pair 3")));
}

}  // namespace
}  // namespace mir::data
