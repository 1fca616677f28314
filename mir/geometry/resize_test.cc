#include "mir/geometry/resize.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "mir/geometry/warp.h"
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

at::Tensor Rand(at::IntArrayRef sizes, uint64_t seed) {
  return at::rand(sizes, at::detail::createCPUGenerator(seed),
                  at::TensorOptions(at::kDouble));
}

at::Tensor Row(std::vector<double> values) {
  return at::tensor(values, at::kFloat).view({1, 1, 1, -1});
}

class ResizeImageDtypeTest : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(ResizeImageDtypeTest, DoublingReadsAtQuartersOfAVoxel) {
  // At -0.25 (constant beyond the centre), 0.25, 0.75, 1.25.
  const at::Tensor image = Row({4, 8}).to(GetParam());
  EXPECT_THAT(ResizeImage(image, {1, 4}),
              TensorEq(Row({4, 5, 7, 8}).to(GetParam())));
  EXPECT_THAT(ResizeImage(image.unsqueeze(2), {1, 1, 4}),
              TensorEq(Row({4, 5, 7, 8}).unsqueeze(2).to(GetParam())));
}

TEST_P(ResizeImageDtypeTest, HalvingAveragesPairs) {
  EXPECT_THAT(ResizeImage(Row({4, 8, 2, 0}).to(GetParam()), {1, 2}),
              TensorEq(Row({6, 1}).to(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, ResizeImageDtypeTest,
                         ::testing::Values(at::kDouble, at::kFloat, at::kHalf,
                                           at::kBFloat16),
                         [](const auto& info) {
                           return std::string(c10::toString(info.param));
                         });

TEST(ResizeImageTest, SameSizeIsTheIdentity) {
  const at::Tensor image = Rand({2, 3, 4, 5, 6}, 1);
  EXPECT_THAT(ResizeImage(image, {4, 5, 6}), TensorEq(image));
  EXPECT_THAT(ResizeImage(image, {4, 5, 6}, Interpolation::kNearest),
              TensorEq(image));
}

TEST(ResizeImageTest, EachAxisHasItsOwnScale) {
  const at::Tensor image = at::arange(8, at::kFloat).view({1, 1, 2, 2, 2});
  const at::Tensor resized = ResizeImage(image, {1, 2, 4});
  // Halfway along d adds 2; along w the values lie at 0, 1/4, 3/4 and 1.
  EXPECT_THAT(resized.flatten(),
              TensorEq(at::tensor({2., 2.25, 2.75, 3., 4., 4.25, 4.75, 5.},
                                  at::kFloat)));
}

TEST(ResizeImageTest, NearestCopiesLabelsOfAnyDtype) {
  for (const at::ScalarType dtype :
       {at::kByte, at::kShort, at::kInt, at::kLong, at::kBool, at::kFloat}) {
    const at::Tensor labels =
        at::tensor({0, 7, 3}, at::kInt).view({1, 1, 1, 3}).to(dtype);
    EXPECT_THAT(
        ResizeImage(labels, {2, 6}, Interpolation::kNearest).to(at::kFloat),
        TensorEq(at::tensor({0, 0, 7, 7, 3, 3, 0, 0, 7, 7, 3, 3}, at::kInt)
                     .view({1, 1, 2, 6})
                     .to(dtype)
                     .to(at::kFloat)));
  }
  // To 2 of 4: (v + 0.5) * 2 is 1 and 3, halfway between two: the later one.
  EXPECT_THAT(ResizeImage(Row({1, 2, 3, 4}), {1, 2}, Interpolation::kNearest),
              TensorEq(Row({2, 4})));
}

TEST(ResizeImageTest, AutocastChangesNothing) {
  const at::Tensor image = Rand({1, 1, 4, 5, 6}, 1).to(at::kFloat);
  const at::Tensor expected = ResizeImage(image, {7, 7, 7});
  const precision::Autocast autocast(at::kCPU, precision::Precision::kBFloat16);
  EXPECT_THAT(ResizeImage(image, {7, 7, 7}), TensorEq(expected));
}

TEST(ResizeImageTest, EmptyBatchIsEmpty) {
  EXPECT_EQ(ResizeImage(at::zeros({0, 1, 4, 5, 6}), {2, 2, 2}).sizes(),
            at::IntArrayRef({0, 1, 2, 2, 2}));
  EXPECT_EQ(
      ResizeImage(at::zeros({0, 1, 4, 5}), {2, 2}, Interpolation::kNearest)
          .sizes(),
      at::IntArrayRef({0, 1, 2, 2}));
}

TEST(ResizeImageTest, SaysWhatWasWantedAndWhatCame) {
  const at::Tensor image = at::zeros({1, 1, 4, 5, 6});
  const struct {
    at::Tensor image;
    std::vector<int64_t> sizes;
    const char* message;
  } cases[] = {
      {at::Tensor(), {1, 1, 1}, "image is undefined"},
      {at::zeros({4, 5, 6}), {1, 1, 1}, "came [4, 5, 6]"},
      {at::zeros({1, 1, 4, 0, 6}), {1, 1, 1}, "wanted image with voxels"},
      {image,
       {8, 8},
       "wanted 3 new sizes of at least 1 for [1, 1, 4, 5, 6], "
       "came [8, 8]"},
      {image, {8, 0, 8}, "came [8, 0, 8]"},
      {image.to(at::kInt),
       {8, 8, 8},
       "for kLinear, came Int; resize labels with kNearest"},
  };
  for (const auto& bad : cases) {
    EXPECT_THAT([&] { ResizeImage(bad.image, bad.sizes); },
                ThrowsMessage<c10::ValueError>(HasSubstr(bad.message)));
  }
}

TEST(ResizeDisplacementTest, RescalesVectors) {
  at::Tensor field = at::zeros({1, 3, 2, 3, 4});
  field.select(1, 0).fill_(1);
  const at::Tensor doubled = ResizeDisplacement(field, {4, 6, 8});
  at::Tensor expected = at::zeros({1, 3, 4, 6, 8});
  expected.select(1, 0).fill_(2);
  EXPECT_THAT(doubled, TensorEq(expected));

  field.select(1, 1).fill_(3);
  field.select(1, 2).fill_(8);
  at::Tensor each = at::zeros({1, 3, 2, 6, 1});
  each.select(1, 0).fill_(1);
  each.select(1, 1).fill_(6);
  each.select(1, 2).fill_(2);
  EXPECT_THAT(ResizeDisplacement(field, {2, 6, 1}), AllClose(each, 1.2e-7));
}

TEST(ResizeDisplacementTest, WarpsTheLargeImageAsTheSmallOne) {
  // A smooth image: the two ways differ by interpolation alone.
  const at::Tensor image =
      at::arange(32, at::kDouble).div(8).sin().view({1, 1, 1, 32});
  at::Tensor field = at::zeros({1, 2, 1, 16}, at::kDouble);
  field.select(1, 1).copy_(at::arange(16, at::kDouble).div(4).cos());
  const at::Tensor small = Warp(
      ResizeImage(image, {1, 16}), field,
      {WarpConvention::kExact, Interpolation::kLinear, Outside::kNearestEdge});
  const at::Tensor large = Warp(
      image, ResizeDisplacement(field, {1, 32}),
      {WarpConvention::kExact, Interpolation::kLinear, Outside::kNearestEdge});
  const at::Tensor difference =
      (ResizeImage(large, {1, 16}) - small).abs().narrow(-1, 2, 12);
  EXPECT_LT(difference.max().item<double>(), 0.01);
}

TEST(ResizeDisplacementTest, ReturnsFloat32ForSixteenBits) {
  EXPECT_EQ(ResizeDisplacement(at::zeros({1, 2, 3, 3}, at::kBFloat16), {6, 6})
                .scalar_type(),
            at::kFloat);
}

TEST(ResizeDisplacementTest, GradientIsTheDerivative) {
  EXPECT_LT(GradientError(
                [](const std::vector<at::Tensor>& in) {
                  return ResizeDisplacement(in[0], {5, 2, 3});
                },
                {Rand({1, 3, 3, 4, 2}, 1)}),
            1e-7);
}

TEST(ResizeDisplacementTest, SaysWhatWasWantedAndWhatCame) {
  EXPECT_THAT(
      [] {
        ResizeDisplacement(at::zeros({1, 2, 4, 5, 6}), {8, 8, 8});
      },
      ThrowsMessage<c10::ValueError>(HasSubstr(
          "ResizeDisplacement: wanted displacement [N, 3, D, H, W]")));
  EXPECT_THAT(
      [] {
        ResizeDisplacement(at::zeros({1, 2, 5, 6}), {8, 8, 8});
      },
      ThrowsMessage<c10::ValueError>(
          HasSubstr("ResizeDisplacement: wanted 2 new sizes of at least 1")));
  EXPECT_THAT(
      [] {
        ResizeDisplacement(at::zeros({1}).expand({1, 3, 2048, 1024, 1024}),
                           {8, 8, 8});
      },
      ThrowsMessage<c10::ValueError>(HasSubstr("fewer than 2^31 voxels")));
}

}  // namespace
}  // namespace mir::geometry
