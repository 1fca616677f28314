#include "mir/geometry/vfa_sampling.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "mir/testing/tensor_matchers.h"

namespace mir::geometry {
namespace {

using ::mir::testing::AllClose;
using ::mir::testing::TensorEq;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr double kEpsilon = 1.2e-7;

at::Tensor Rand(at::IntArrayRef sizes, uint64_t seed,
                at::ScalarType dtype = at::kFloat) {
  return at::rand(sizes, at::detail::createCPUGenerator(seed),
                  at::TensorOptions(dtype));
}

TEST(IdentityGridTest, SaysWhereVoxelsLie) {
  EXPECT_THAT(IdentityGrid({2, 3}),
              TensorEq(at::tensor({0., 0., 0., 1., 1., 1.,  //
                                   0., 1., 2., 0., 1., 2.},
                                  at::kFloat)
                           .view({1, 2, 2, 3})));
  EXPECT_THAT(IdentityGrid({1, 2, 1}, false, 1)[0][1][0].select(1, 0),
              TensorEq(at::tensor({-1., 0., 1., 2.}, at::kFloat)));
  EXPECT_THAT(IdentityGrid({3, 2}, true)[0][0].select(1, 0),
              TensorEq(at::tensor({-1., 0., 1.}, at::kFloat)));
}

TEST(GridTest, DisplacementAndNormalisedGridOfTheIdentity) {
  const at::Tensor identity = IdentityGrid({4, 5, 6});
  EXPECT_THAT(GridToDisplacement(identity),
              TensorEq(at::zeros({1, 3, 4, 5, 6})));
  EXPECT_THAT(NormalizeGrid(identity),
              AllClose(IdentityGrid({4, 5, 6}, true), 2 * kEpsilon));
  EXPECT_THAT(UpsampleGrid(identity),
              AllClose(IdentityGrid({8, 10, 12}), 16 * kEpsilon));
}

TEST(GridTest, SamplesWhereTheGridSays) {
  const at::Tensor source = Rand({2, 3, 5, 6}, 1);
  const at::Tensor grid = IdentityGrid({5, 6}).expand({2, 2, 5, 6});
  EXPECT_THAT(SampleAtGrid(source, grid), TensorEq(source));
  // One voxel further along w; the edge repeats.
  at::Tensor shifted = grid.clone();
  shifted.select(1, 1).add_(1);
  EXPECT_THAT(SampleAtGrid(source, shifted),
              TensorEq(at::cat({source.narrow(3, 1, 5), source.narrow(3, 5, 1)},
                               /*dim=*/3)));
}

TEST(NeighbourhoodsTest, HoldEachVoxelWithItsNeighbours) {
  const at::Tensor features = Rand({2, 4, 5, 6, 7}, 2, at::kDouble);
  const at::Tensor neighbours = Neighbourhoods(features);
  EXPECT_EQ(neighbours.sizes(), at::IntArrayRef({2, 3, 4, 5, 27, 4}));
  EXPECT_THAT(
      neighbours.select(4, 13),
      TensorEq(features.slice(2, 1, 4).slice(3, 1, 5).slice(4, 1, 6).permute(
          {0, 2, 3, 4, 1})));
}

TEST(VfaSamplingTest, SaysWhatWasWantedAndWhatCame) {
  const auto refuses = [](const auto& function, const char* message) {
    EXPECT_THAT(function, ThrowsMessage<c10::ValueError>(HasSubstr(message)));
  };
  const at::Tensor grid = IdentityGrid({4, 1});
  refuses([] { IdentityGrid({4}); }, "wanted (D, H, W) or (H, W)");
  refuses([] { IdentityGrid({4, 0}); }, "wanted voxels, came [4, 0]");
  refuses([] { IdentityGrid({4, 1}, true); }, "at least 2 voxels");
  refuses([&] { NormalizeGrid(grid); }, "at least 2 voxels");
  refuses([&] { UpsampleGrid(grid); }, "at least 2 voxels");
  refuses([] { UpsampleGrid(IdentityGrid({4, 4}), 0); }, "factor");
  refuses([] { GridToDisplacement(at::zeros({1, 1, 4, 4})); }, "wanted grid");
  refuses(
      [&] {
        SampleAtGrid(at::zeros({1, 1, 4, 4}), grid);
      },
      "wanted displacement [1, 2, 4, 4]");
  refuses([] { Neighbourhoods(at::zeros({1, 1, 2, 4})); }, "margin");
}

}  // namespace
}  // namespace mir::geometry
