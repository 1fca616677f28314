#include "mir/data/grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace mir::data {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

// 2x3x4 mm, axes to the left, the head and the front.
Grid LeftSuperiorAnterior() {
  Grid grid;
  grid.size = {10, 20, 30};
  grid.to_world = {{{-2, 0, 0, 9}, {0, 0, 4, -7}, {0, 3, 0, 5}, {0, 0, 0, 1}}};
  return grid;
}

TEST(GridTest, KnowsItsSpacingAndOrientation) {
  const Grid grid = LeftSuperiorAnterior();
  EXPECT_THAT(SpacingMm(grid), ElementsAre(2, 3, 4));
  EXPECT_EQ(Orientation(grid), "LSA");
  EXPECT_EQ(Orientation(Grid()), "RAS");
  EXPECT_EQ(Describe(grid),
            "10x20x30 voxels of 2x3x4 mm, LSA, first voxel at (9, -7, 5) mm");
}

TEST(GridTest, AxesOfAnObliqueGridTakeDifferentDirections) {
  // Both first axes point mostly to the right.
  Grid grid;
  grid.to_world = {
      {{.8, .75, 0, 0}, {-.6, .66, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}}};
  EXPECT_EQ(Orientation(grid), "RAS");
}

TEST(GridTest, InvertsAffines) {
  const Affine to_world = {
      {{-2, .1, 0, 9}, {.2, 0, 4, -7}, {0, 3, .3, 5}, {0, 0, 0, 1}}};
  const Affine product = Multiply(to_world, Inverse(to_world));
  for (int row = 0; row < 4; ++row) {
    for (int column = 0; column < 4; ++column) {
      EXPECT_NEAR(product[row][column], row == column, 1e-12);
    }
  }
  EXPECT_THAT(Apply(to_world, {1, 0, 2}),
              ElementsAre(DoubleEq(7), DoubleEq(1.2), DoubleEq(5.6)));
}

TEST(GridTest, TellsMatricesThatCannotBeInverted) {
  EXPECT_TRUE(IsInvertible(kIdentity));
  Affine flat = kIdentity;
  flat[2][2] = 0;
  EXPECT_FALSE(IsInvertible(flat));
  Affine parallel = kIdentity;
  parallel[1][1] = 1e-9;
  parallel[0][1] = 1;
  EXPECT_FALSE(IsInvertible(parallel));
  Affine broken = kIdentity;
  broken[0][3] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(IsInvertible(broken));
  Affine tiny = kIdentity;  // Half a micrometre: a microscope's.
  for (int axis = 0; axis < 3; ++axis) tiny[axis][axis] = 5e-4;
  EXPECT_TRUE(IsInvertible(tiny));
}

TEST(GridTest, SameGridForgivesRoundedHeadersOnly) {
  const Grid grid = LeftSuperiorAnterior();
  Grid other = grid;
  EXPECT_TRUE(SameGrid(grid, other));
  other.to_world[0][3] += 0.05;
  EXPECT_TRUE(SameGrid(grid, other));
  other.to_world[0][3] += 0.1;
  EXPECT_FALSE(SameGrid(grid, other));
  other = grid;
  other.to_world[0][0] = -2.02;  // 0.18 mm after 9 voxels.
  EXPECT_FALSE(SameGrid(grid, other));
  other = grid;
  other.size[2] = 31;
  EXPECT_FALSE(SameGrid(grid, other));
}

}  // namespace
}  // namespace mir::data
