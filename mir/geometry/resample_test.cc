#include "mir/geometry/resample.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "mir/testing/tensor_matchers.h"

namespace mir::geometry {
namespace {

using ::mir::testing::AllClose;
using ::mir::testing::TensorEq;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using Affine = std::array<std::array<double, 4>, 4>;
constexpr Affine kIdentity = {
    {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}}};

at::Tensor Row(std::vector<double> values) {
  return at::tensor(values, at::kFloat).view({1, 1, -1});
}

// Voxel w of the result lies at scale * w + offset of the volume.
Affine AlongW(double scale, double offset) {
  Affine affine = kIdentity;
  affine[2][2] = scale;
  affine[2][3] = offset;
  return affine;
}

class ResampleDtypeTest : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(ResampleDtypeTest, IdentityKeepsTheVolume) {
  const at::Tensor volume =
      at::arange(60, at::kFloat).view({3, 4, 5}).to(GetParam());
  EXPECT_THAT(ResampleTo(volume, kIdentity, {3, 4, 5}, Interpolation::kNearest),
              TensorEq(volume));
  if (at::isFloatingType(GetParam())) {
    EXPECT_THAT(ResampleTo(volume, kIdentity, {3, 4, 5}), TensorEq(volume));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Dtypes, ResampleDtypeTest,
    ::testing::Values(at::kByte, at::kChar, at::kShort, at::kInt, at::kLong,
                      at::kHalf, at::kBFloat16, at::kFloat, at::kDouble),
    [](const auto& info) { return std::string(c10::toString(info.param)); });

TEST(ResampleToTest, InterpolatesInsideAndFillsOutside) {
  // At -0.6, -0.5, -0.25, 0.25, 1, 1.25, 1.4 and 1.5.
  const std::vector<double> at = {-0.6, -0.5, -0.25, 0.25, 1, 1.25, 1.4, 1.5};
  const std::vector<double> expected = {-9, 4, 4, 5, 8, 8, 8, -9};
  for (size_t i = 0; i < at.size(); ++i) {
    EXPECT_THAT(ResampleTo(Row({4, 8}), AlongW(1, at[i]), {1, 1, 1},
                           Interpolation::kLinear, -9),
                TensorEq(Row({expected[i]})))
        << at[i];
  }
}

TEST(ResampleToTest, NearestTakesTheLaterVoxelHalfway) {
  EXPECT_THAT(ResampleTo(Row({1, 2, 3, 4, 5}), AlongW(0.5, -0.5), {1, 1, 11},
                         Interpolation::kNearest, 9),
              TensorEq(Row({1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 9})));
}

TEST(ResampleToTest, MatrixRoundingDoesNotDecideHalves) {
  for (const double noise : {-1e-9, 0.0, 1e-9}) {
    EXPECT_THAT(ResampleTo(Row({1, 2, 3, 4}), AlongW(1, -0.5 + noise),
                           {1, 1, 5}, Interpolation::kNearest, 9),
                TensorEq(Row({1, 2, 3, 4, 9})));
  }
}

TEST(ResampleToTest, AxesMayBeFlippedAndSwapped) {
  const at::Tensor volume = at::arange(24, at::kInt).view({2, 3, 4});
  // Result (d, h, w) reads (1 - w, h, d).
  const Affine affine = {
      {{0, 0, -1, 1}, {0, 1, 0, 0}, {1, 0, 0, 0}, {0, 0, 0, 1}}};
  EXPECT_THAT(ResampleTo(volume, affine, {4, 3, 2}, Interpolation::kNearest),
              TensorEq(volume.flip(0).transpose(0, 2)));
}

TEST(ResampleToTest, LinearVolumesAreResampledExactly) {
  const at::Tensor volume = at::arange(5, at::kDouble).view({5, 1, 1}) * 100 +
                            at::arange(6, at::kDouble).view({6, 1}) * 10 +
                            at::arange(7, at::kDouble);
  const Affine affine = {{{0.75, 0.125, 0, 0.5},
                          {0.0, 0.5, 0.25, 1.0},
                          {-0.25, 0.25, 0.5, 1.5},
                          {0, 0, 0, 1}}};
  const at::Tensor resampled = ResampleTo(volume, affine, {4, 5, 6});
  for (int64_t d = 0; d < 4; ++d) {
    for (int64_t h = 0; h < 5; ++h) {
      for (int64_t w = 0; w < 6; ++w) {
        const double expected = 100 * (0.75 * d + 0.125 * h + 0.5) +
                                10 * (0.5 * h + 0.25 * w + 1.0) +
                                (-0.25 * d + 0.25 * h + 0.5 * w + 1.5);
        EXPECT_NEAR(resampled[d][h][w].item<double>(), expected, 1e-10);
      }
    }
  }
}

TEST(ResampleToTest, NeighboursWithoutWeightDoNotCount) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(ResampleTo(Row({1, infinity, 3}), AlongW(2, 0), {1, 1, 2}),
              TensorEq(Row({1, 3})));
}

TEST(ResampleToTest, ThreadsDoNotChangeABit) {
  const at::Tensor volume =
      at::rand({20, 30, 40}, at::detail::createCPUGenerator(1),
               at::TensorOptions(at::kFloat));
  const Affine affine = {{{0.9, 0.1, 0, 0.3},
                          {-0.1, 0.8, 0.25, 1.0},
                          {0.05, 0.2, 0.7, 1.5},
                          {0, 0, 0, 1}}};
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = ResampleTo(volume, affine, {30, 40, 50});
  at::set_num_threads(3);
  const at::Tensor three = ResampleTo(volume, affine, {30, 40, 50});
  at::set_num_threads(threads);
  EXPECT_THAT(three, TensorEq(one));
}

TEST(ResampleToTest, SaysWhatWasWantedAndWhatCame) {
  const at::Tensor volume = at::zeros({2, 3, 4});
  Affine nan = kIdentity;
  nan[1][3] = std::nan("");
  Affine perspective = kIdentity;
  perspective[3][0] = 1;
  constexpr Interpolation kNearest = Interpolation::kNearest;
  constexpr Interpolation kLinear = Interpolation::kLinear;
  const struct {
    at::Tensor volume;
    Affine affine;
    std::vector<int64_t> sizes;
    Interpolation interpolation;
    double fill;
    const char* message;
  } cases[] = {
      {at::Tensor(), kIdentity, {1, 1, 1}, kLinear, 0, "volume is undefined"},
      {at::zeros({1, 2, 3, 4}),
       kIdentity,
       {1, 1, 1},
       kLinear,
       0,
       "wanted volume [D, H, W] with voxels, came [1, 2, 3, 4]"},
      {at::zeros({2, 0, 4}),
       kIdentity,
       {1, 1, 1},
       kLinear,
       0,
       "came [2, 0, 4]"},
      {volume.to(at::kMeta),
       kIdentity,
       {1, 1, 1},
       kLinear,
       0,
       "on the CPU, came meta"},
      {volume.to(at::kBool), kIdentity, {1, 1, 1}, kNearest, 0, "came Bool"},
      {volume.to(at::kInt),
       kIdentity,
       {1, 1, 1},
       kLinear,
       0,
       "for kLinear, came Int; resample labels with kNearest"},
      {volume,
       kIdentity,
       {1, 1},
       kLinear,
       0,
       "wanted 3 sizes of at least 1, came [1, 1]"},
      {volume, kIdentity, {1, 0, 1}, kLinear, 0, "came [1, 0, 1]"},
      {volume, nan, {1, 1, 1}, kLinear, 0, "wanted a finite result_to_volume"},
      {volume,
       perspective,
       {1, 1, 1},
       kLinear,
       0,
       "last row of result_to_volume, came [1, 0, 0, 1]"},
      {volume.to(at::kByte),
       kIdentity,
       {1, 1, 1},
       kNearest,
       -1,
       "wanted a fill that Byte holds, came -1"},
      {volume.to(at::kInt),
       kIdentity,
       {1, 1, 1},
       kNearest,
       0.5,
       "wanted a fill that Int holds, came 0.5"},
      {volume.to(at::kShort),
       kIdentity,
       {1, 1, 1},
       kNearest,
       32768,
       "wanted a fill that Short holds, came 32768"},
  };
  for (const auto& bad : cases) {
    EXPECT_THAT(
        [&] {
          ResampleTo(bad.volume, bad.affine, bad.sizes, bad.interpolation,
                     bad.fill);
        },
        ThrowsMessage<c10::ValueError>(HasSubstr(bad.message)));
  }
}

}  // namespace
}  // namespace mir::geometry
