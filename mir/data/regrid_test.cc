#include "mir/data/regrid.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "mir/data/nifti_test_util.h"
#include "mir/data/prepare.h"
#include "mir/geometry/warp.h"
#include "mir/testing/status_matchers.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::data {
namespace {

using mir::testing::AllClose;
using mir::testing::IsOk;
using mir::testing::StatusIs;
using mir::testing::TensorEq;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kEpsilon = 1.2e-7;

// 2x3x4 mm, axes to the left, the head and the front.
Grid LeftSuperiorAnterior() {
  Grid grid;
  grid.size = {10, 12, 8};
  grid.to_world = {{{-2, 0, 0, 9}, {0, 0, 4, -7}, {0, 3, 0, 5}, {0, 0, 0, 1}}};
  return grid;
}

// A volume whose voxels are x + 10 y + 100 z of their place in mm.
Volume WorldRamp(const Grid& grid) {
  Volume volume;
  volume.grid = grid;
  volume.name = "ramp";
  volume.voxels = at::zeros(grid.size);
  auto voxels = volume.voxels.accessor<float, 3>();
  for (int64_t i = 0; i < grid.size[0]; ++i) {
    for (int64_t j = 0; j < grid.size[1]; ++j) {
      for (int64_t k = 0; k < grid.size[2]; ++k) {
        const auto at = Apply(grid.to_world, {double(i), double(j), double(k)});
        voxels[i][j][k] = static_cast<float>(at[0] + 10 * at[1] + 100 * at[2]);
      }
    }
  }
  return volume;
}

at::Tensor Inside(const at::Tensor& voxels, int64_t border) {
  at::Tensor inside = voxels;
  for (int64_t axis = 0; axis < 3; ++axis) {
    inside = inside.narrow(axis, border, inside.size(axis) - 2 * border);
  }
  return inside;
}

TEST(RegridTest, ReorderingToRasMovesNoVoxel) {
  const Volume volume = WorldRamp(LeftSuperiorAnterior());
  const Grid ras = RasGrid(volume.grid);
  EXPECT_EQ(Orientation(ras), "RAS");
  EXPECT_THAT(ras.size, ElementsAre(10, 8, 12));
  EXPECT_THAT(SpacingMm(ras), ElementsAre(2, 4, 3));
  EXPECT_THAT(Apply(ras.to_world, {0, 0, 0}), ElementsAre(-9, -7, 5));

  const Volume reordered = OntoGrid(volume, ras);

  EXPECT_THAT(reordered.voxels, TensorEq(WorldRamp(ras).voxels));
  EXPECT_TRUE(reordered.voxels.is_contiguous());
  EXPECT_EQ(reordered.header, nullptr);
  EXPECT_TRUE(SameGrid(RasGrid(ras), ras));
}

TEST(RegridTest, AnIsotropicGridCoversTheFieldOfView) {
  Grid grid;
  grid.size = {181, 217, 181};
  grid.to_world[0][3] = -90;
  const auto two = IsotropicRasGrid(grid, 2);
  ASSERT_THAT(two, IsOk());
  EXPECT_THAT(two->size, ElementsAre(91, 109, 91));
  EXPECT_EQ(two->to_world[0][3], -90);  // Same centre: 0.
  EXPECT_TRUE(SameGrid(*IsotropicRasGrid(grid, 1), grid));
  const auto mixed = IsotropicRasGrid(LeftSuperiorAnterior(), 2);
  EXPECT_THAT(mixed->size, ElementsAre(10, 16, 18));
  EXPECT_EQ(IsotropicRasGrid(grid, 1000)->size[0], 1);

  for (const double spacing : {0.0, -1.0, std::nan("")}) {
    EXPECT_THAT(
        IsotropicRasGrid(grid, spacing),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("above 0 mm")));
  }
  EXPECT_THAT(IsotropicRasGrid(grid, 0.01),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("0.01 mm"), HasSubstr("too many"))));
}

TEST(RegridTest, ResamplingKeepsEverythingInItsPlace) {
  const Volume volume = WorldRamp(LeftSuperiorAnterior());
  const Grid grid = *IsotropicRasGrid(volume.grid, 2.5);
  const Volume resampled = OntoGrid(volume, grid);
  // Away from the border, where values repeat, a ramp stays a ramp.
  EXPECT_THAT(Inside(resampled.voxels, 3),
              AllClose(Inside(WorldRamp(grid).voxels, 3), 16 * kEpsilon));
}

TEST(RegridTest, CoarserImagesDoNotAlias) {
  Volume stripes;
  stripes.grid.size = {32, 8, 8};
  stripes.voxels = at::zeros({32, 8, 8});
  for (int64_t i = 0; i < 32; i += 2) stripes.voxels[i].fill_(1);
  const Volume coarse = OntoGrid(stripes, *IsotropicRasGrid(stripes.grid, 4));
  // The border repeats, so the first and the last lean to one side.
  EXPECT_THAT(coarse.voxels.narrow(0, 1, 6),
              AllClose(at::full({6, 2, 2}, 0.5), 1e-3));
}

TEST(RegridTest, LabelsComeFromTheNearestVoxelAndFillsAreAsAsked) {
  Volume labels;
  labels.grid.size = {4, 4, 4};
  labels.voxels = at::full({4, 4, 4}, 7, at::kInt);
  labels.voxels[0].fill_(90);
  Grid grid = labels.grid;
  grid.to_world[0][3] = -1.4;
  const Volume moved = OntoGrid(labels, grid);
  EXPECT_EQ(moved.voxels.scalar_type(), at::kInt);
  EXPECT_THAT(moved.voxels.select(1, 0).select(1, 0),
              TensorEq(at::tensor({0, 90, 7, 7}, at::kInt)));

  Volume scan = labels;  // Air outside a CT.
  scan.voxels = labels.voxels.to(at::kFloat);
  const Volume filled = OntoGrid(scan, grid, -1024);
  EXPECT_EQ(filled.voxels[0][0][0].item<float>(), -1024);
}

TEST(RegridTest, DisplacementsAreTurnedAndScaledIntoTheOtherGridsVoxels) {
  Grid coarse;
  coarse.size = {4, 4, 4};
  for (int axis = 0; axis < 3; ++axis) coarse.to_world[axis][axis] = 4;
  at::Tensor shift = at::zeros({3, 4, 4, 4});
  shift[0].fill_(1);  // 4 mm to the right.
  const Grid fine = *IsotropicRasGrid(coarse, 2);
  const at::Tensor on_fine = DisplacementOnGrid(shift, coarse, fine);
  EXPECT_THAT(on_fine[0], TensorEq(at::full({8, 8, 8}, 2.f)));
  EXPECT_THAT(on_fine[1], TensorEq(at::zeros({8, 8, 8})));

  // Axes to the left, the head and the front.
  Grid turned = fine;
  turned.to_world = {
      {{-2, 0, 0, 13}, {0, 0, 2, -1}, {0, 2, 0, -1}, {0, 0, 0, 1}}};
  shift[1].fill_(2);   // 8 mm to the front.
  shift[2].fill_(-1);  // 4 mm to the feet.
  const at::Tensor on_turned = DisplacementOnGrid(shift, coarse, turned);
  EXPECT_THAT(on_turned[0], TensorEq(at::full({8, 8, 8}, -2.f)));
  EXPECT_THAT(on_turned[1], TensorEq(at::full({8, 8, 8}, -2.f)));
  EXPECT_THAT(on_turned[2], TensorEq(at::full({8, 8, 8}, 4.f)));

  // Reordering back and forth is exact.
  const at::Tensor field = at::rand({3, 8, 8, 8});
  const Grid ras = RasGrid(turned);
  EXPECT_THAT(
      DisplacementOnGrid(DisplacementOnGrid(field, turned, ras), ras, turned),
      AllClose(field, 2 * kEpsilon));
  EXPECT_THROW(DisplacementOnGrid(field, coarse, fine), c10::ValueError);
}

TEST(RegridTest, WarpingOntoTheSameGridIsAPlainWarp) {
  Volume moving = WorldRamp(LeftSuperiorAnterior());
  moving.voxels = at::rand(moving.grid.size);
  at::Tensor shift = 4 * at::rand({3, 10, 12, 8}) - 2;
  const Volume warped = WarpOntoGrid(moving, shift, moving.grid);
  const at::Tensor plain = geometry::Warp(
      moving.voxels.unsqueeze(0).unsqueeze(0), shift.unsqueeze(0))[0][0];
  // Near the border one fades over a voxel, the other is constant for half.
  EXPECT_THAT(Inside(warped.voxels, 3), AllClose(Inside(plain, 3), 1e-5));
}

TEST(RegridTest, WarpingReadsAMovingVolumeOnAnyGridOnce) {
  // A shift by (1, 2, -1) voxels of 2 mm, to the left, the head and the front.
  Grid fixed = LeftSuperiorAnterior();
  Grid elsewhere;
  elsewhere.size = {70, 100, 100};
  elsewhere.to_world = {
      {{.8, .1, 0, -25}, {-.1, .8, 0, -30}, {0, 0, .7, -4}, {0, 0, 0, 1}}};
  const Volume moving = WorldRamp(elsewhere);
  at::Tensor shift = at::zeros({3, 10, 12, 8});
  shift[0].fill_(1);
  shift[1].fill_(2);
  shift[2].fill_(-1);
  const Volume warped = WarpOntoGrid(moving, shift, fixed);
  const at::Tensor moved = WorldRamp(fixed).voxels - 2 + 10 * (-4.) + 100 * 6.;
  EXPECT_THAT(warped.voxels, AllClose(moved, 64 * kEpsilon));

  Volume labels = moving;
  labels.voxels = at::full(elsewhere.size, 3, at::kInt);
  shift[0].fill_(1000);
  EXPECT_THAT(WarpOntoGrid(labels, shift, fixed).voxels,
              TensorEq(at::zeros(fixed.size, at::kInt)));
  EXPECT_EQ(
      WarpOntoGrid(moving, shift, fixed, -1024).voxels.max().item<float>(),
      -1024);
  shift[0].fill_(std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(WarpOntoGrid(moving, shift, fixed, 5).voxels.max().item<float>(),
            5);
  EXPECT_THROW(WarpOntoGrid(moving, shift, elsewhere), c10::ValueError);
}

// ---- Preparing pairs ----

TEST(PrepareTest, VolumesStoredInDifferentWaysComeToLookAlike) {
  PairVolumes pair;
  pair.fixed = WorldRamp(LeftSuperiorAnterior());
  pair.moving = WorldRamp(RasGrid(LeftSuperiorAnterior()));
  pair.fixed_labels = pair.fixed;
  pair.fixed_labels->voxels = pair.fixed.voxels.to(at::kInt);
  pair.moving_labels = pair.moving;
  pair.moving_labels->voxels = pair.moving.voxels.to(at::kInt);

  const auto prepared = PreparePair(pair, PrepareOptions());

  ASSERT_THAT(prepared, IsOk());
  const Pair tensors = PairOf(*prepared);
  EXPECT_EQ(tensors.fixed.sizes(), (std::vector<int64_t>{1, 10, 8, 12}));
  EXPECT_THAT(tensors.fixed, TensorEq(tensors.moving));
  EXPECT_THAT(tensors.fixed_labels, TensorEq(tensors.moving_labels));
  EXPECT_EQ(Orientation(prepared->fixed.grid), "RAS");

  // As they are stored only where they are stored alike.
  PrepareOptions stored;
  stored.reorient = false;
  EXPECT_FALSE(PreparePair(pair, stored).ok());
  pair.moving = pair.fixed;
  pair.moving_labels = absl::nullopt;
  const auto as_stored = PreparePair(pair, stored);
  ASSERT_THAT(as_stored, IsOk());
  EXPECT_EQ(Orientation(as_stored->fixed.grid), "LSA");
  EXPECT_FALSE(PairOf(*as_stored).fixed_labels.defined());
}

TEST(PrepareTest, DifferentGridsAreRefusedByNameOrResampled) {
  PairVolumes pair;
  pair.fixed = WorldRamp(LeftSuperiorAnterior());
  pair.fixed.name = "fixed.nii";
  Grid other = LeftSuperiorAnterior();
  other.to_world[0][3] += 1;
  pair.moving = WorldRamp(other);
  pair.moving.name = "moving.nii";

  EXPECT_THAT(
      PreparePair(pair, PrepareOptions()),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("fixed.nii has 10x12x8 voxels of 2x3x4 mm, LSA"),
                     HasSubstr("first voxel at (9, -7, 5)"),
                     HasSubstr("moving.nii has 10x12x8"),
                     HasSubstr("first voxel at (10, -7, 5)"),
                     HasSubstr("--spacing"))));

  PrepareOptions options;
  options.spacing_mm = 2;
  const auto prepared = PreparePair(pair, options);
  ASSERT_THAT(prepared, IsOk());
  EXPECT_THAT(prepared->fixed.grid.size, ElementsAre(10, 16, 18));
  EXPECT_TRUE(SameGrid(prepared->fixed.grid, prepared->moving.grid));
  EXPECT_THAT(Inside(prepared->fixed.voxels, 4),
              AllClose(Inside(prepared->moving.voxels, 4), 16 * kEpsilon));
}

TEST(PrepareTest, LabelsMustLieOnTheirImage) {
  PairVolumes pair;
  pair.fixed = WorldRamp(LeftSuperiorAnterior());
  pair.fixed.name = "image.nii";
  pair.moving = pair.fixed;
  pair.fixed_labels = pair.fixed;
  pair.fixed_labels->name = "labels.nii";
  pair.fixed_labels->grid.size[0] = 9;
  EXPECT_THAT(PreparePair(pair, PrepareOptions()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("image.nii is 10x12x8"),
                             HasSubstr("labels.nii is 9x12x8"))));
  pair.fixed_labels->grid = pair.fixed.grid;
  pair.fixed_labels->grid.to_world[2][3] = 50;
  EXPECT_THAT(
      PreparePair(pair, PrepareOptions()),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("place in space"), HasSubstr("(9, -7, 50)"))));
}

TEST(PrepareTest, AWindowThatMissesAllValuesIsAnError) {
  RawNifti raw;  // Values 0 to 23.
  const std::string path = WriteTestFile("window.nii", raw.Bytes());
  const auto image = ReadNormalized(path, *ParseIntensity("window:0,46"));
  ASSERT_THAT(image, IsOk());
  EXPECT_EQ(image->voxels.max().item<float>(), 0.5);
  raw.slope = 1;
  raw.inter = -33792;
  EXPECT_THAT(
      ReadNormalized(WriteTestFile("window.nii", raw.Bytes()),
                     *ParseIntensity("window:-1000,500")),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr(path), HasSubstr("-33792 to -33769"),
                     HasSubstr("window:-1000,500"), HasSubstr("scl_slope"))));
  EXPECT_THAT(ReadNormalized("absent.nii", Intensity()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent.nii")));
}

}  // namespace
}  // namespace mir::data
