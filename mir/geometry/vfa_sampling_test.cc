#include "mir/geometry/vfa_sampling.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "mir/precision/autocast.h"
#include "mir/precision/precision.h"
#include "mir/testing/gradient_check.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::geometry {
namespace {

using ::mir::testing::AllClose;
using ::mir::testing::GradientError;
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

TEST(MatchNeighboursTest, IsSoftmaxAttentionOverNeighbourhoods) {
  const at::Tensor fixed = Rand({2, 4, 3, 4, 5}, 1, at::kDouble);
  const at::Tensor moving = Rand({2, 4, 5, 6, 7}, 2, at::kDouble);
  const at::Tensor keys = Neighbourhoods(moving);
  EXPECT_EQ(keys.sizes(), at::IntArrayRef({2, 3, 4, 5, 27, 4}));
  EXPECT_THAT(
      keys.select(4, 13),
      TensorEq(moving.slice(2, 1, 4).slice(3, 1, 5).slice(4, 1, 6).permute(
          {0, 2, 3, 4, 1})));
  const at::Tensor query = fixed.permute({0, 2, 3, 4, 1}).unsqueeze(-1);
  const at::Tensor weights =
      at::softmax(at::matmul(keys, query).squeeze(-1) / 2, -1);
  const at::Tensor expected =
      at::matmul(weights, NeighbourOffsets(3).to(at::kDouble))
          .permute({0, 4, 1, 2, 3});
  EXPECT_THAT(MatchNeighbours(fixed, moving), AllClose(expected, 1e-14));
}

TEST(MatchNeighboursTest, FindsTheNeighbourThatMatches) {
  const at::Tensor fixed = at::full({1, 1, 4, 5}, 1.);
  at::Tensor moving = at::zeros({1, 1, 6, 7});
  moving[0][0][2][4] = 100;
  const at::Tensor found = MatchNeighbours(fixed, moving);
  // Voxel (0, 2) has it one down, one to the right (with the margin of 1).
  EXPECT_THAT(found.select(2, 0).select(2, 2).flatten(),
              AllClose(at::tensor({1., 1.}, at::kFloat), kEpsilon));
  EXPECT_THAT(found.select(2, 3).select(2, 0).flatten(),
              AllClose(at::tensor({0., 0.}, at::kFloat), kEpsilon));
}

TEST(MatchNeighboursTest, GradientIsTheDerivative) {
  EXPECT_LT(GradientError(
                [](const std::vector<at::Tensor>& in) {
                  return MatchNeighbours(in[0], in[1]);
                },
                {Rand({1, 2, 3, 4}, 1, at::kDouble),
                 Rand({1, 2, 5, 6}, 2, at::kDouble)}),
            1e-7);
}

TEST(MatchNeighboursTest, SixteenBitFeaturesAreMatchedInFloat32) {
  const at::Tensor fixed = Rand({1, 2, 3, 4}, 1).to(at::kBFloat16);
  const at::Tensor moving = Rand({1, 2, 5, 6}, 2).to(at::kBFloat16);
  const precision::Autocast autocast(at::kCPU, precision::Precision::kBFloat16);
  const at::Tensor found = MatchNeighbours(fixed, moving);
  EXPECT_EQ(found.scalar_type(), at::kFloat);
  EXPECT_THAT(found, AllClose(MatchNeighbours(fixed.to(at::kDouble),
                                              moving.to(at::kDouble)),
                              10 * kEpsilon));
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
  refuses(
      [] {
        MatchNeighbours(at::zeros({1, 1, 2, 4}), at::zeros({1, 1, 2, 4}));
      },
      "wanted moving [1, 1, 4, 6]");
}

}  // namespace
}  // namespace mir::geometry
