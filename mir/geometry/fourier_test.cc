#include "mir/geometry/fourier.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "mir/precision/autocast.h"
#include "mir/precision/precision.h"
#include "mir/testing/gradient_check.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::geometry {
namespace {

using ::mir::testing::AllClose;
using ::mir::testing::GradientError;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using Tensors = std::vector<at::Tensor>;
using Numbers = std::vector<double>;
using Sizes = std::vector<int64_t>;

constexpr double kTight = 1e-13;  // Some hundred roundings of float64.
const double kPi = std::acos(-1.0);

at::Tensor Random(const Sizes& shape, uint64_t seed = 1) {
  return at::rand(shape, at::detail::createCPUGenerator(seed),
                  at::TensorOptions(at::kDouble)) -
         0.5;
}

// cos(2 pi sum_axes k x / size + phase), as [1, 1, sizes...].
at::Tensor Wave(const Sizes& sizes, const Numbers& periods, double phase) {
  at::Tensor angle = at::zeros(sizes, at::kDouble) + phase;
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    Sizes along(sizes.size(), 1);
    along[axis] = sizes[axis];
    angle = angle + at::arange(sizes[axis], at::kDouble).view(along) *
                        (2 * kPi * periods[axis] / sizes[axis]);
  }
  return angle.cos().unsqueeze(0).unsqueeze(0);
}

// Of different low frequencies.
at::Tensor LowWaves(const Sizes& sizes) {
  return 0.3 + Wave(sizes, {1, -2, 1}, 0.4) + 0.5 * Wave(sizes, {2, 0, -1}, 1) -
         2 * Wave(sizes, {0, 1, 2}, 2);
}

TEST(FourierResizeTest, LowFrequenciesSurviveShrinkingAndEnlarging) {
  const Sizes large = {12, 15, 14};
  for (const Sizes& small : {Sizes{5, 6, 7}, {6, 5, 8}, {11, 9, 5}}) {
    // The function does not depend on the grid.
    EXPECT_THAT(FourierResize(LowWaves(large), small),
                AllClose(LowWaves(small), kTight));
    EXPECT_THAT(FourierResize(LowWaves(small), large),
                AllClose(LowWaves(large), kTight));
  }
  // One axis up, one down, one as it is.
  EXPECT_THAT(FourierResize(LowWaves({12, 6, 7}), {7, 20, 7}),
              AllClose(LowWaves({7, 20, 7}), kTight));
}

TEST(FourierResizeTest, EnlargingKeepsTheVoxelsThatStay) {
  const at::Tensor image = Random({2, 3, 5, 6});
  const at::Tensor enlarged = FourierResize(image, {15, 12});
  EXPECT_THAT(enlarged.slice(2, 0, 15, 3).slice(3, 0, 12, 2),
              AllClose(image, kTight));
}

TEST(FourierResizeTest, TheHighestFrequencyKeepsItsCosine) {
  // 2 periods over 4 voxels, and over 8.
  const at::Tensor coarse = Wave({1, 4}, {0, 2}, 0);
  const at::Tensor fine = Wave({1, 8}, {0, 2}, 0);
  EXPECT_THAT(FourierResize(coarse, {1, 8}), AllClose(fine, kTight));
  EXPECT_THAT(FourierResize(fine, {1, 4}), AllClose(coarse, kTight));
  const at::Tensor sine = Wave({1, 8}, {0, 2}, kPi / 2);
  EXPECT_LE(FourierResize(sine, {1, 4}).abs().max().item<double>(), kTight);
}

TEST(FourierResizeTest, VectorsAreRescaled) {
  at::Tensor field = at::zeros({1, 3, 4, 5, 6}, at::kHalf);
  field.select(1, 0).fill_(1);
  field.select(1, 2).fill_(-3);
  const at::Tensor resized = FourierResizeDisplacement(field, {8, 5, 4});
  EXPECT_EQ(resized.scalar_type(), at::kFloat);
  const at::Tensor expected =
      at::tensor({2., 0., -2.}).view({1, 3, 1, 1, 1}).expand({1, 3, 8, 5, 4});
  EXPECT_THAT(resized, AllClose(expected, 1e-6));
}

TEST(SmoothingTest, WavesAreMultipliedByTheSymbol) {
  const Sizes sizes = {6, 10, 7};
  const Numbers periods = {1, -5, 3};
  const at::Tensor wave = Wave(sizes, periods, 0.3);
  const Numbers sigma = {0.5, 0, 0.4};
  double exponent = 0, laplacian = 0;
  for (int axis = 0; axis < 3; ++axis) {
    const double angle = 2 * kPi * periods[axis] / sizes[axis];
    exponent += std::pow(angle * sigma[axis], 2) / 2;
    laplacian += 2 * (1 - std::cos(angle));
  }
  EXPECT_THAT(GaussianSmooth(wave, sigma),
              AllClose(wave * std::exp(-exponent), kTight));
  const SobolevOperator l = {.alpha = 0.7, .gamma = 0.4, .power = 1.5};
  const double symbol = std::pow(l.gamma + l.alpha * laplacian, l.power);
  EXPECT_THAT(ApplySobolev(wave, l), AllClose(wave * symbol, kTight));
  EXPECT_THAT(SobolevSmooth(wave, l), AllClose(wave / symbol, kTight));
}

TEST(SmoothingTest, SobolevOfPowerOneIsMadeOfNeighbours) {
  const at::Tensor image = Random({2, 2, 4, 5});
  at::Tensor expected = 0.5 * image;
  for (const int64_t axis : {2, 3}) {
    expected = expected +
               0.3 * (2 * image - image.roll(1, axis) - image.roll(-1, axis));
  }
  EXPECT_THAT(ApplySobolev(image, {.alpha = 0.3, .gamma = 0.5, .power = 1}),
              AllClose(expected, kTight));
}

TEST(SmoothingTest, OneIsTheInverseOfTheOther) {
  const at::Tensor field = Random({1, 3, 5, 6, 9});
  const SobolevOperator l = {.alpha = 3, .gamma = 0.1, .power = 2};
  // Rounding is amplified by the largest symbol over the smallest.
  const double condition = std::pow((0.1 + 12 * 3) / 0.1, 2);
  EXPECT_THAT(SobolevSmooth(ApplySobolev(field, l), l),
              AllClose(field, 1e-16 * condition));
  EXPECT_THAT(ApplySobolev(SobolevSmooth(field, l), l),
              AllClose(field, 1e-16 * condition));
}

TEST(SmoothingTest, TheSymbolCanBeKept) {
  const at::Tensor field = Random({2, 3, 5, 6, 9});
  const SobolevOperator l = {.alpha = 3, .gamma = 0.5, .power = 1};
  const at::Tensor k = SobolevSymbol({5, 6, 9}, l, /*exponent=*/-1, at::kCPU);
  EXPECT_THAT(k.sizes(), ::testing::ElementsAre(5, 6, 5));
  EXPECT_THAT(MultiplySpectrum(field, k),
              AllClose(SobolevSmooth(field, l), kTight));
}

TEST(SmoothingTest, MeanIsKept) {
  const at::Tensor image = Random({1, 1, 5, 6, 9}) + 3;
  const double mean = image.mean().item<double>();
  EXPECT_NEAR(GaussianSmooth(image, {2., 2., 2.}).mean().item<double>(), mean,
              kTight);
  EXPECT_NEAR(SobolevSmooth(image, {.alpha = 5}).mean().item<double>(), mean,
              kTight);
}

TEST(SpectralConvolutionTest, MixesTheChannelsOfEachFrequency) {
  // Two channels with one wave each; only its frequency has weights.
  for (const Sizes& sizes : {Sizes{6, 10, 7}, {9, 5, 8}}) {
    const at::Tensor input = at::cat(
        {Wave(sizes, {-1, 2, 1}, 0.3), Wave(sizes, {-1, 2, 1}, -0.8)}, 1);
    at::Tensor weight = at::zeros({2, 3, 3, 5, 2, 2}, at::kDouble);
    const at::Tensor matrix = Random({2, 3, 2});
    // Frequencies -1..1, -2..2 and 0..1.
    weight.select(4, 1).select(3, 4).select(2, 0).copy_(matrix);
    at::Tensor expected = at::zeros({1, 3, sizes[0], sizes[1], sizes[2]});
    expected = expected.to(at::kDouble);
    for (int o = 0; o < 3; ++o) {
      for (int c = 0; c < 2; ++c) {
        const double phase = c == 0 ? 0.3 : -0.8;
        // Re((a + ib) e^(i angle)).
        expected.select(1, o) +=
            (matrix[c][o][0] * Wave(sizes, {-1, 2, 1}, phase) +
             matrix[c][o][1] * Wave(sizes, {-1, 2, 1}, phase + kPi / 2))
                .squeeze(1);
      }
    }
    EXPECT_THAT(SpectralConvolution(input, weight), AllClose(expected, kTight));
  }
}

TEST(SpectralConvolutionTest, KeepsTheRealPartWhereAFrequencyIsItsOpposite) {
  const at::Tensor input = 2 + Wave({1, 4}, {0, 2}, 0);
  const at::Tensor weight =
      at::tensor({3., 5., 0., 0., 7., 9.}, at::kDouble).view({1, 1, 1, 3, 2});
  EXPECT_THAT(SpectralConvolution(input, weight),
              AllClose(6 + 7 * Wave({1, 4}, {0, 2}, 0), kTight));
}

TEST(SpectralConvolutionTest, AllFrequenciesWithWeightOneAreTheIdentity) {
  for (const Sizes& sizes : {Sizes{4, 5, 6}, {5, 4, 7}, {1, 1, 1}}) {
    const at::Tensor input = Random({2, 1, sizes[0], sizes[1], sizes[2]});
    at::Tensor weight =
        at::zeros({1, 1, sizes[0], sizes[1], sizes[2] / 2 + 1, 2}, at::kDouble);
    weight.select(5, 0).fill_(1);
    EXPECT_THAT(SpectralConvolution(input, weight), AllClose(input, kTight));
  }
}

TEST(FourierTest, SixteenBitsComputeInFloat32AndReturnTheirDtype) {
  const precision::Autocast autocast(c10::DeviceType::CPU,
                                     precision::Precision::kBFloat16);
  const at::Tensor weight = Random({2, 2, 3, 3, 3, 2}).to(at::kFloat);
  const std::function<at::Tensor(const at::Tensor&)> layers[] = {
      [](const at::Tensor& x) {
        return FourierResize(x, {7, 4, 6});
      },
      [](const at::Tensor& x) {
        return GaussianSmooth(x, {1., 2., 0.5});
      },
      [](const at::Tensor& x) { return ApplySobolev(x, {}); },
      [](const at::Tensor& x) { return SobolevSmooth(x, {}); },
      [&](const at::Tensor& x) { return SpectralConvolution(x, weight); },
  };
  for (const auto& layer : layers) {
    for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16, at::kFloat}) {
      const at::Tensor x = Random({1, 2, 5, 6, 7}).to(dtype);
      const at::Tensor result = layer(x);
      EXPECT_EQ(result.scalar_type(), dtype);
      const double epsilon = dtype == at::kHalf       ? 4.9e-4
                             : dtype == at::kBFloat16 ? 3.9e-3
                                                      : 2e-6;
      EXPECT_THAT(result, AllClose(layer(x.to(at::kDouble)), epsilon));
    }
  }
}

TEST(FourierTest, GradientsAreThoseOfDifferences) {
  const at::Tensor image = Random({1, 2, 3, 4, 5});
  EXPECT_LE(GradientError(
                [](const Tensors& in) {
                  return FourierResize(in[0], {6, 3, 2});
                },
                {image}),
            1e-8);
  EXPECT_LE(GradientError(
                [](const Tensors& in) {
                  return FourierResizeDisplacement(in[0], {2, 7});
                },
                {Random({1, 2, 4, 4})}),
            1e-8);
  EXPECT_LE(GradientError(
                [](const Tensors& in) {
                  return GaussianSmooth(in[0], {1., 0.5, 0.});
                },
                {image}),
            1e-8);
  EXPECT_LE(GradientError(
                [](const Tensors& in) {
                  return ApplySobolev(SobolevSmooth(in[0], {.power = 2}),
                                      {.power = 1});
                },
                {image}),
            1e-8);
  EXPECT_LE(
      GradientError(
          [](const Tensors& in) { return SpectralConvolution(in[0], in[1]); },
          {image, Random({2, 1, 3, 2, 3, 2})}),
      1e-8);
}

TEST(FourierTest, SaysWhatItWanted) {
  const auto says = [](const char* text) {
    return ThrowsMessage<c10::ValueError>(HasSubstr(text));
  };
  const at::Tensor good = at::zeros({1, 2, 4, 4});
  EXPECT_THAT([&] { FourierResize({}, {2, 2}); }, says("undefined"));
  EXPECT_THAT([&] { FourierResize(good[0], {2, 2}); }, says("[N, C, D, H, W]"));
  EXPECT_THAT(
      [&] {
        FourierResize(good.to(at::kInt), {2, 2});
      },
      says("floating"));
  EXPECT_THAT(
      [&] {
        FourierResize(good.narrow(2, 0, 0), {2, 2});
      },
      says("with voxels"));
  EXPECT_THAT([&] { FourierResize(good, {2}); }, says("2 positive sizes"));
  EXPECT_THAT(
      [&] {
        FourierResizeDisplacement(good, {2, 0});
      },
      says("2 positive sizes"));
  EXPECT_THAT(
      [&] {
        FourierResizeDisplacement(at::zeros({1, 3, 4, 4}), {2, 2});
      },
      says("wanted displacement"));
  EXPECT_THAT([&] { GaussianSmooth(good, {1.}); }, says("as sigma"));
  EXPECT_THAT([&] { GaussianSmooth(good, {1., -1.}); }, says("as sigma"));
  EXPECT_THAT([&] { ApplySobolev(good, {.gamma = 0}); }, says("gamma > 0"));
  EXPECT_THAT([&] { SobolevSmooth(good, {.alpha = -1}); }, says("alpha >= 0"));
  EXPECT_THAT(
      [&] { SobolevSmooth(good + std::numeric_limits<float>::infinity(), {}); },
      says("SobolevSmooth: input[0, 0, 0, 0] is inf"));
  EXPECT_THAT(
      [&] {
        SobolevSymbol({4, 0}, {}, 1, at::kCPU);
      },
      says("positive sizes"));
  EXPECT_THAT(
      [&] {
        MultiplySpectrum(good, at::zeros({4, 4}));
      },
      says("a symbol of its spectrum"));
  EXPECT_THAT([&] { SpectralConvolution(good, {}); },
              says("weight is undefined"));
  EXPECT_THAT(
      [&] {
        SpectralConvolution(good, at::zeros({1, 2, 2, 2, 2}));
      },
      says("[C, O, modes..., 2]"));
  EXPECT_THAT(
      [&] {
        SpectralConvolution(good, at::zeros({2, 2, 2, 4, 2}));
      },
      says("1 to 3 frequencies"));
}

}  // namespace
}  // namespace mir::geometry
