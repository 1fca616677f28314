#include "mir/geometry/affine.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "mir/testing/gradient_check.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::geometry {
namespace {

using ::mir::testing::AllClose;
using ::mir::testing::GradientError;
using ::mir::testing::TensorEq;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr double kEpsilon = 2.3e-16;

// Uniform in [-size, size].
at::Tensor Random(std::vector<int64_t> shape, double size = 0.3,
                  uint64_t seed = 1) {
  return (at::rand(shape, at::detail::createCPUGenerator(seed),
                   at::TensorOptions(at::kDouble)) -
          0.5) *
         (2 * size);
}

// Maps near the identity.
at::Tensor RandomMaps(int64_t count = 2) {
  return at::eye(3, 4, at::kDouble) + Random({count, 3, 4});
}

at::Tensor Numbers(std::vector<double> values) {
  return at::tensor(values, at::kDouble).unsqueeze(0);
}

at::Tensor Nothing(int64_t count = 3) {
  return at::zeros({1, count}, at::kDouble);
}

at::Tensor LinearOf(const at::Tensor& matrix) { return matrix.narrow(2, 0, 3); }

TEST(AffineTest, TheIdentityIsExact) {
  for (const at::ScalarType dtype :
       {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor zero = at::zeros({1, 3}, dtype);
    const at::Tensor identity =
        AffineMatrix(zero, zero + 1, zero, at::zeros({1, 6}, dtype));
    EXPECT_EQ(identity.scalar_type(),
              dtype == at::kDouble ? at::kDouble : at::kFloat);
    EXPECT_THAT(identity,
                TensorEq(at::eye(3, 4, identity.options()).unsqueeze(0)));
    EXPECT_THAT(AugmentationMatrix(zero, zero, zero), TensorEq(identity));
    EXPECT_THAT(InvertAffine(identity), TensorEq(identity));
    EXPECT_THAT(AffineToDisplacement(identity, {5, 6, 300}),
                TensorEq(at::zeros({1, 3, 5, 6, 300}, identity.options())));
    const at::Tensor image = Random({1, 2, 5, 6, 7}).to(dtype);
    EXPECT_THAT(ApplyAffine(image, identity), TensorEq(image));
  }
}

TEST(AffineTest, AQuarterTurnAboutZTurnsThePlanes) {
  const double quarter = std::acos(-1.0) / 2;
  const at::Tensor turn = AffineMatrix(Numbers({0, 0, quarter}), Nothing() + 1,
                                       Nothing(), Nothing(6));
  // (x, y) is read at (y, -x): from the centre, w at h, and h at -w.
  const at::Tensor image = Random({1, 1, 2, 3, 3});
  EXPECT_THAT(ApplyAffine(image, turn),
              AllClose(image.flip(3).transpose(3, 4), 8 * kEpsilon));
  EXPECT_THAT(
      AugmentationMatrix(Numbers({0, 0, quarter}), Nothing(), Nothing()),
      AllClose(InvertAffine(turn), 4 * kEpsilon));
}

TEST(AffineTest, ScaleShearAndTranslationStandWhereTheySay) {
  const at::Tensor tangents = Numbers({0.1, 0.2, 0.3, 0.4, 0.5, 0.6});
  EXPECT_THAT(
      AffineMatrix(Nothing(), Numbers({2, 3, 4}), Numbers({7, 8, 9}),
                   tangents.atan()),
      AllClose(at::tensor({2., 0.9, 2., 7., 0.2, 3., 2.4, 8., 0.4, 1.2, 4., 9.})
                   .view({1, 3, 4}),
               4 * kEpsilon));
  EXPECT_THAT(
      AugmentationMatrix(Nothing(), Numbers({1, 2, 3}), Numbers({7, 8, 9})),
      TensorEq(at::tensor({2., 0., 0., 7., 0., 3., 0., 8., 0., 0., 4., 9.},
                          at::kDouble)
                   .view({1, 3, 4})));
}

TEST(AffineTest, ANormalizedShiftIsInHalfVolumes) {
  // 2 / W along x reads the next voxel.
  const at::Tensor shift =
      AffineMatrix(Nothing(), Nothing() + 1, Numbers({0.5, 0, 0}), Nothing(6));
  const at::Tensor field =
      AffineToDisplacement(ToVoxelAffine(shift, {3, 5, 4}), {3, 5, 4});
  EXPECT_THAT(field[0][2], TensorEq(at::zeros({3, 5, 4}, at::kDouble) + 1));
  EXPECT_EQ(field[0].narrow(0, 0, 2).abs().max().item<double>(), 0);
}

TEST(AffineTest, InverseUndoesTheMap) {
  const at::Tensor maps = RandomMaps();
  const at::Tensor back = InvertAffine(maps);
  const at::Tensor linear = at::matmul(LinearOf(back), LinearOf(maps));
  EXPECT_THAT(linear, AllClose(at::eye(3, at::kDouble).expand({2, 3, 3}),
                               16 * kEpsilon));
  const at::Tensor moved =
      at::matmul(LinearOf(back), maps.narrow(2, 3, 1)) + back.narrow(2, 3, 1);
  EXPECT_LE(moved.abs().max().item<double>(), 16 * kEpsilon);
  EXPECT_THAT(InvertAffine(back), AllClose(maps, 16 * kEpsilon));
}

TEST(AffineTest, FormsGoBothWays) {
  const at::Tensor maps = RandomMaps();
  const std::vector<int64_t> sizes = {5, 40, 7};
  EXPECT_THAT(ToNormalizedAffine(ToVoxelAffine(maps, sizes), sizes),
              AllClose(maps, 4 * kEpsilon));
}

TEST(AffineTest, TheDisplacementIsThatOfTheVoxelMap) {
  const at::Tensor map = RandomMaps(1);
  const std::vector<int64_t> sizes = {4, 5, 6};
  const at::Tensor field = AffineToDisplacement(map, sizes);
  const at::Tensor centre = at::tensor({1.5, 2., 2.5}, at::kDouble);
  for (const std::vector<double>& where :
       {std::vector<double>{0, 0, 0}, {3, 1, 5}, {2, 4, 0}}) {
    const at::Tensor voxel = at::tensor(where, at::kDouble);
    const at::Tensor expected = at::matmul(LinearOf(map)[0], voxel - centre) +
                                centre + map[0].select(1, 3) - voxel;
    EXPECT_THAT(
        field[0].select(1, where[0]).select(1, where[1]).select(1, where[2]),
        AllClose(expected, 16 * kEpsilon));
  }
}

TEST(AffineTest, ADisplacementHasTheNearestMap) {
  const at::Tensor maps = RandomMaps();
  const at::Tensor field = AffineToDisplacement(maps, {4, 5, 6});
  EXPECT_THAT(DisplacementToAffine(field), AllClose(maps, 16 * kEpsilon));
  EXPECT_THAT(DisplacementToAffine(field.to(at::kFloat)),
              AllClose(maps, 4 * 1.2e-7));
  // What is left after the fit is orthogonal to every affine field.
  const at::Tensor noisy = field + Random({2, 3, 4, 5, 6}, 1, 2);
  const at::Tensor left =
      noisy - AffineToDisplacement(DisplacementToAffine(noisy), {4, 5, 6});
  EXPECT_THAT(
      DisplacementToAffine(left),
      AllClose(at::eye(3, 4, at::kDouble).expand({2, 3, 4}), 16 * kEpsilon));
  // One plane says nothing of its own direction.
  const at::Tensor plane = DisplacementToAffine(field.narrow(2, 0, 1));
  EXPECT_THAT(plane.select(2, 0),
              TensorEq(at::eye(3, at::kDouble)[0].expand({2, 3}).contiguous()));
}

TEST(AffineTest, TransformerGivesAllThree) {
  const at::Tensor image = Random({2, 1, 4, 5, 6});
  const at::Tensor rotation = Random({2, 3}), scale = 1 + Random({2, 3});
  const at::Tensor shift = Random({2, 3}, 0.1, 3), shear = Random({2, 6});
  const AffineTransformer::Result all = AffineTransformer(
      Interpolation::kNearest)(image, rotation, scale, shift, shear);
  EXPECT_THAT(all.matrix,
              TensorEq(AffineMatrix(rotation, scale, shift, shear)));
  EXPECT_THAT(all.inverse, TensorEq(InvertAffine(all.matrix)));
  EXPECT_THAT(all.warped, TensorEq(ApplyAffine(image, all.matrix,
                                               Interpolation::kNearest)));
}

TEST(AffineTest, GradientsAreThoseOfDifferences) {
  using Tensors = std::vector<at::Tensor>;
  const std::vector<int64_t> sizes = {3, 4, 5};
  const at::Tensor maps = RandomMaps();
  const auto error = [](const std::function<at::Tensor(const Tensors&)>& f,
                        const Tensors& inputs) {
    return GradientError(f, inputs);
  };
  EXPECT_LE(
      error(
          [](const Tensors& in) {
            return AffineMatrix(in[0], in[1], in[2], in[3]);
          },
          {Random({2, 3}), 1 + Random({2, 3}), Random({2, 3}), Random({2, 6})}),
      1e-8);
  EXPECT_LE(error(
                [](const Tensors& in) {
                  return AugmentationMatrix(in[0], in[1], in[2]);
                },
                {Random({2, 3}), Random({2, 3}), Random({2, 3})}),
            1e-8);
  EXPECT_LE(
      error([](const Tensors& in) { return InvertAffine(in[0]); }, {maps}),
      1e-8);
  EXPECT_LE(
      error(
          [&](const Tensors& in) {
            return DisplacementToAffine(AffineToDisplacement(
                ToVoxelAffine(ToNormalizedAffine(in[0], {7, 8, 9}), sizes),
                sizes));
          },
          {maps}),
      1e-8);
}

TEST(AffineTest, SaysWhatItWanted) {
  const auto says = [](const char* text) {
    return ThrowsMessage<c10::ValueError>(HasSubstr(text));
  };
  const at::Tensor map = RandomMaps(1);
  EXPECT_THAT([&] { AffineMatrix({}, Nothing(), Nothing(), Nothing(6)); },
              says("rotation is undefined"));
  EXPECT_THAT(
      [&] { AffineMatrix(Nothing(), Nothing(), Nothing(), Nothing(3)); },
      says("wanted shear"));
  EXPECT_THAT(
      [&] {
        AugmentationMatrix(Nothing(), Nothing(), at::zeros({2, 3}));
      },
      says("equal numbers of samples"));
  EXPECT_THAT([&] { InvertAffine(map[0]); }, says("samples of shape [3, 4]"));
  EXPECT_THAT([&] { InvertAffine(map.to(at::kInt)); }, says("floating"));
  EXPECT_THAT(
      [&] {
        AffineToDisplacement(map, {4, 0, 4});
      },
      says("positive sizes"));
  EXPECT_THAT([&] { ToVoxelAffine(map, {4, 4}); }, says("positive sizes"));
  EXPECT_THAT([&] { ToNormalizedAffine(map, {4, 4}); }, says("positive sizes"));
  EXPECT_THAT(
      [&] {
        DisplacementToAffine(at::zeros({1, 2, 4, 4}));
      },
      says("[N, 3, D, H, W]"));
  EXPECT_THAT(
      [&] {
        ApplyAffine(at::zeros({1, 4, 4, 4}), map);
      },
      says("wanted an image"));
  EXPECT_THAT(
      [&] {
        ApplyAffine(at::zeros({2, 1, 4, 4, 4}), map);
      },
      says("a map for each"));
}

}  // namespace
}  // namespace mir::geometry
