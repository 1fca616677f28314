#include "tools/register/measure.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mir::tools {
namespace {

using ::nlohmann::json;

// Label 3 is a plate of one voxel at plane `at`.
at::Tensor Plate(int64_t at) {
  at::Tensor labels = at::zeros({8, 6, 6}, at::kInt);
  labels[at].fill_(3);
  return labels;
}

VolumePair PairOf2Millimetres() {
  VolumePair pair;
  pair.fixed.name = "fixed.nii";
  pair.moving.name = "moving.nii";
  pair.fixed.grid.size = {8, 6, 6};
  pair.fixed.grid.to_world[0][0] = 2;
  return pair;
}

RegisteredVolumes Nothing() {
  RegisteredVolumes found;
  found.displacement = at::zeros({3, 8, 6, 6});
  return found;
}

TEST(MeasureTest, WithoutLabelsItSaysHowTheFieldFolds) {
  EXPECT_EQ(Measure(PairOf2Millimetres(), Nothing()),
            (json{{"fixed", "fixed.nii"},
                  {"moving", "moving.nii"},
                  {"folded", 0.0},
                  {"sd_log_jacobian", 0.0}}));
}

TEST(MeasureTest, DistancesAreInMillimetresOfTheFixedImage) {
  VolumePair pair = PairOf2Millimetres();
  pair.fixed_labels.voxels = Plate(2);
  RegisteredVolumes found = Nothing();
  found.moving_labels = Plate(5);
  found.warped_labels = Plate(3);
  const json measured = Measure(pair, found);
  EXPECT_EQ(measured["hd95_mm_before"], 6);
  EXPECT_EQ(measured["hd95_mm"], 2);
  EXPECT_EQ(measured["hd95_mm_by_label"], (json{{"3", 2.0}}));
  EXPECT_EQ(measured["dice"], 0);
  EXPECT_EQ(measured["dice_by_label"], (json{{"3", 0.0}}));
  EXPECT_EQ(measured["missing_labels"], 0);
}

TEST(MeasureTest, WhatIsNoNumberIsNull) {
  VolumePair pair = PairOf2Millimetres();
  pair.fixed_labels.voxels = Plate(2);
  RegisteredVolumes found;
  found.displacement = at::zeros({3, 8, 6, 4});
  found.moving_labels = found.warped_labels = at::zeros({8, 6, 6}, at::kInt);
  const json measured = Measure(pair, found);
  EXPECT_TRUE(measured["sd_log_jacobian"].is_null());
  EXPECT_TRUE(measured["hd95_mm"].is_null());
  EXPECT_EQ(measured["hd95_mm_by_label"], (json{{"3", nullptr}}));
  EXPECT_EQ(measured["missing_labels"], 1);
}

TEST(SummarizeTest, AveragesWhatPairsHave) {
  const json summary = Summarize({{{"folded", 0.5}, {"dice", 0.25}},
                                  {{"folded", 0.25}, {"dice", 0.75}},
                                  {{"folded", 0.0}, {"hd95_mm", nullptr}}});
  EXPECT_EQ(summary["pairs"].size(), 3);
  EXPECT_EQ(summary["folded"], 0.25);
  EXPECT_EQ(summary["dice"], 0.5);
  EXPECT_TRUE(summary["hd95_mm"].is_null());
  EXPECT_FALSE(summary.contains("sd_log_jacobian"));
}

}  // namespace
}  // namespace mir::tools
