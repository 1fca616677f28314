#include "mir/losses/local_ncc.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "mir/precision/autocast.h"
#include "mir/testing/gradient_check.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::losses {
namespace {

using mir::testing::AllClose;
using mir::testing::GradientError;
using mir::testing::TensorEq;
using ::testing::HasSubstr;

constexpr double kFloatEpsilon = 1.2e-7;

at::Tensor Random(at::IntArrayRef sizes, uint64_t seed,
                  at::ScalarType dtype = at::kDouble) {
  return at::rand(sizes, at::detail::createCPUGenerator(seed),
                  at::TensorOptions(at::kDouble))
      .to(dtype);
}

LocalNcc WithWindow(int64_t window) {
  LocalNccOptions options;
  options.window = window;
  return LocalNcc(options);
}

double Variance(const at::Tensor& values) {
  return (values - values.mean()).square().mean().item<double>();
}

// The definition, window by window.
double ByWindows(const at::Tensor& fixed, const at::Tensor& moving,
                 int64_t window, double epsilon) {
  double sum = 0;
  for (int64_t n = 0; n < fixed.size(0); ++n) {
    for (int64_t c = 0; c < fixed.size(1); ++c) {
      at::Tensor f = fixed[n][c];
      at::Tensor m = moving[n][c];
      if (f.dim() == 2) {
        f = f.unsqueeze(0);
        m = m.unsqueeze(0);
      }
      const double floor_f = epsilon * Variance(f);
      const double floor_m = epsilon * Variance(m);
      for (int64_t voxel = 0; voxel < f.numel(); ++voxel) {
        const int64_t at[] = {voxel / (f.size(1) * f.size(2)),
                              voxel / f.size(2) % f.size(1), voxel % f.size(2)};
        at::Tensor f_window = f;
        at::Tensor m_window = m;
        for (int64_t axis = 0; axis < 3; ++axis) {
          const int64_t begin = std::max<int64_t>(at[axis] - window / 2, 0);
          const int64_t end = std::min(at[axis] + window / 2 + 1, f.size(axis));
          f_window = f_window.narrow(axis, begin, end - begin);
          m_window = m_window.narrow(axis, begin, end - begin);
        }
        const double cov =
            ((f_window - f_window.mean()) * (m_window - m_window.mean()))
                .mean()
                .item<double>();
        const double den =
            (Variance(f_window) + floor_f) * (Variance(m_window) + floor_m);
        sum += cov * cov / den;
      }
    }
  }
  return -sum / fixed.numel();
}

struct Shape {
  std::vector<int64_t> sizes;
  int64_t window;
};

TEST(LocalNccTest, EqualsItsDefinitionWindowByWindow) {
  for (const Shape& shape : std::vector<Shape>{{{1, 1, 6, 7, 8}, 3},
                                               {{2, 2, 4, 5, 3}, 5},
                                               {{1, 1, 7, 6, 5}, 9},
                                               {{2, 3, 9, 8}, 3},
                                               {{1, 1, 11, 12}, 9},
                                               {{1, 1, 3, 4, 5}, 21}}) {
    const at::Tensor fixed = Random(shape.sizes, 1);
    const at::Tensor moving = 0.7 * fixed + 0.3 * Random(shape.sizes, 2);
    const double expected = ByWindows(fixed, moving, shape.window, 1e-5);
    const LocalNcc loss = WithWindow(shape.window);
    EXPECT_NEAR(loss(fixed, moving).item<double>(), expected, 1e-13);
    EXPECT_NEAR(
        loss(fixed.to(at::kFloat), moving.to(at::kFloat)).item<double>(),
        expected, 4 * kFloatEpsilon);
  }
}

TEST(LocalNccTest, GradientsEqualDifferences) {
  for (const Shape& shape : std::vector<Shape>{
           {{1, 2, 4, 5, 6}, 3}, {{2, 1, 5, 4, 3}, 9}, {{1, 1, 9, 8}, 5}}) {
    const LocalNcc loss = WithWindow(shape.window);
    const at::Tensor fixed = Random(shape.sizes, 1);
    const at::Tensor moving = 0.7 * fixed + 0.3 * Random(shape.sizes, 2);
    EXPECT_LT(GradientError([&](const auto& in) { return loss(in[0], in[1]); },
                            {fixed, moving}),
              1e-7);
  }
}

TEST(LocalNccTest, GradientsEqualDifferencesWhereTheFloorsCount) {
  LocalNccOptions options;
  options.window = 3;
  options.epsilon = 0.5;
  EXPECT_LT(GradientError(
                [&](const auto& in) { return LocalNcc(options)(in[0], in[1]); },
                {Random({1, 2, 4, 5, 3}, 1), Random({1, 2, 4, 5, 3}, 2)}),
            1e-7);
}

TEST(LocalNccTest, AnImageAndItselfIsMinusOne) {
  const at::Tensor image = Random({1, 1, 12, 12, 12}, 1, at::kFloat);
  EXPECT_NEAR(LocalNcc()(image, image).item<double>(), -1, 3e-5);
  EXPECT_NEAR(LocalNcc()(image, 1 - image).item<double>(), -1, 3e-5);
}

TEST(LocalNccTest, ScalingAndShiftingChangeNothing) {
  const at::Tensor fixed = Random({1, 1, 10, 9, 8}, 1);
  const at::Tensor moving = fixed + Random({1, 1, 10, 9, 8}, 2);
  const double value = LocalNcc()(fixed, moving).item<double>();
  EXPECT_NEAR(LocalNcc()(3000 * fixed - 1000, moving).item<double>(), value,
              1e-11);
  EXPECT_NEAR(LocalNcc()(fixed, -255 * moving).item<double>(), value, 1e-12);
}

// Value in [-1, 0] and a finite gradient for both images; returns the value.
double CheckedValue(const at::Tensor& fixed, const at::Tensor& moving) {
  const at::Tensor f = fixed.detach().clone().requires_grad_();
  const at::Tensor m = moving.detach().clone().requires_grad_();
  const at::Tensor value = LocalNcc()(f, m);
  value.backward();
  for (const at::Tensor& gradient : {f.grad(), m.grad()}) {
    EXPECT_TRUE(at::isfinite(gradient).all().item<bool>());
  }
  EXPECT_GE(value.item<double>(), -1);
  EXPECT_LE(value.item<double>(), 0);
  return value.item<double>();
}

TEST(LocalNccTest, ConstantImagesContributeNothing) {
  const std::vector<int64_t> sizes = {1, 1, 12, 12, 12};
  const at::Tensor random = Random(sizes, 1, at::kFloat);
  for (const double constant : {0.0, 0.5, 0.1, -1000.1, 3e38}) {
    const at::Tensor flat = at::full(sizes, constant, at::kFloat);
    EXPECT_EQ(CheckedValue(flat, flat), 0) << constant;
    EXPECT_EQ(CheckedValue(flat, random), 0) << constant;
    EXPECT_EQ(CheckedValue(random, flat), 0) << constant;
    const at::Tensor moving = flat.clone().requires_grad_();
    LocalNcc()(random, moving).backward();
    EXPECT_THAT(moving.grad(), TensorEq(at::zeros(sizes)));
  }
}

TEST(LocalNccTest, FlatWindowsContributeNothing) {
  // The left half is flat, with a value whose square rounds.
  at::Tensor fixed = at::full({1, 1, 8, 8, 30}, 0.1, at::kFloat);
  fixed.narrow(4, 15, 15).copy_(Random({1, 1, 8, 8, 15}, 1));
  const at::Tensor other = Random({1, 1, 8, 8, 30}, 2, at::kFloat);
  LocalNccOptions options;
  options.window = 5;
  const at::Tensor moving = other.clone().requires_grad_();
  const at::Tensor value = LocalNcc(options)(fixed, moving);
  value.backward();
  // Windows around columns 0 to 12 hold flat voxels alone, so the moving
  // image's columns up to 10 are in flat windows only.
  EXPECT_LT(moving.grad().narrow(4, 0, 11).abs().max().item<double>(),
            1e-12 * moving.grad().abs().max().item<double>() + 1e-9);
  EXPECT_NEAR(value.item<double>(),
              ByWindows(fixed.to(at::kDouble), other.to(at::kDouble), 5, 1e-5),
              4 * kFloatEpsilon);
}

TEST(LocalNccTest, AConstantSampleLeavesTheOthersOfTheBatch) {
  at::Tensor fixed = Random({2, 1, 8, 8, 8}, 1, at::kFloat);
  const at::Tensor moving = Random({2, 1, 8, 8, 8}, 2, at::kFloat);
  fixed[1].fill_(0.3);
  const double both = CheckedValue(fixed, moving);
  const double first =
      CheckedValue(fixed.narrow(0, 0, 1), moving.narrow(0, 0, 1));
  EXPECT_NEAR(both, first / 2, kFloatEpsilon);
}

TEST(LocalNccTest, SmallContrastOnALargeOffsetDoesNotCancel) {
  const std::vector<int64_t> sizes = {1, 1, 24, 24, 24};
  const at::Tensor fixed = (200 + 0.01 * Random(sizes, 1)).to(at::kFloat);
  const at::Tensor moving = (200 + 0.01 * Random(sizes, 2)).to(at::kFloat);
  const double expected =
      LocalNcc()(fixed.to(at::kDouble), moving.to(at::kDouble)).item<double>();
  EXPECT_NEAR(CheckedValue(fixed, moving), expected, 1e-6 * -expected);
  // Independent noise in windows of 729 (fewer at the border) is unrelated.
  EXPECT_GT(expected, -0.02);
}

TEST(LocalNccTest, WideIntensitiesInFloat16StayFinite) {
  const std::vector<int64_t> sizes = {1, 1, 24, 24, 24};
  const at::Tensor fixed = 255 * Random(sizes, 1);
  const at::Tensor moving = 0.5 * fixed + 0.5 * 255 * Random(sizes, 2);
  const double expected = LocalNcc()(fixed, moving).item<double>();
  EXPECT_NEAR(CheckedValue(fixed.to(at::kHalf), moving.to(at::kHalf)), expected,
              1e-2 * -expected);
}

class LocalNccDtypeTest : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(LocalNccDtypeTest, ComputesWideAndReturnsTheInputsGradientType) {
  const at::ScalarType dtype = GetParam();
  const at::Tensor fixed = Random({1, 1, 8, 8, 8}, 1, dtype);
  const at::Tensor moving = Random({1, 1, 8, 8, 8}, 2, dtype).requires_grad_();
  const at::Tensor value = LocalNcc()(fixed, moving);
  EXPECT_EQ(value.scalar_type(),
            dtype == at::kDouble ? at::kDouble : at::kFloat);
  EXPECT_NEAR(
      value.item<double>(),
      LocalNcc()(fixed.to(at::kDouble), moving.to(at::kDouble)).item<double>(),
      4 * kFloatEpsilon);
  value.backward();
  EXPECT_EQ(moving.grad().scalar_type(), dtype);
}

TEST_P(LocalNccDtypeTest, AutocastChangesNothing) {
  const at::Tensor fixed = Random({1, 1, 8, 8, 8}, 1, GetParam());
  const at::Tensor moving = Random({1, 1, 8, 8, 8}, 2, GetParam());
  const at::Tensor outside = LocalNcc()(fixed, moving);
  const precision::Autocast autocast(at::kCPU, precision::Precision::kBFloat16);
  EXPECT_THAT(LocalNcc()(fixed, moving), TensorEq(outside));
}

TEST_P(LocalNccDtypeTest, TheOtherImageMayHaveAnotherType) {
  const at::Tensor fixed = Random({1, 1, 8, 8}, 1, at::kFloat);
  const at::Tensor moving = Random({1, 1, 8, 8}, 2, GetParam());
  EXPECT_NEAR(
      LocalNcc()(fixed, moving).item<double>(),
      LocalNcc()(fixed.to(at::kDouble), moving.to(at::kDouble)).item<double>(),
      4 * kFloatEpsilon);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, LocalNccDtypeTest,
                         ::testing::Values(at::kDouble, at::kFloat, at::kHalf,
                                           at::kBFloat16),
                         [](const auto& info) {
                           return std::string(c10::toString(info.param));
                         });

TEST(LocalNccTest, StridedImagesAreRead) {
  const at::Tensor fixed = Random({1, 1, 6, 7, 8}, 1);
  const at::Tensor moving = Random({1, 1, 6, 7, 8}, 2);
  const double expected = LocalNcc()(fixed, moving).item<double>();
  const at::Tensor strided =
      moving.transpose(2, 4).contiguous().transpose(2, 4).requires_grad_();
  ASSERT_FALSE(strided.is_contiguous());
  const at::Tensor value = LocalNcc()(fixed, strided);
  EXPECT_EQ(value.item<double>(), expected);
  value.backward();
  const at::Tensor dense = moving.clone().requires_grad_();
  LocalNcc()(fixed, dense).backward();
  EXPECT_THAT(strided.grad(), TensorEq(dense.grad()));
}

std::string ErrorOf(const at::Tensor& fixed, const at::Tensor& moving) {
  try {
    LocalNcc()(fixed, moving);
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "no c10::ValueError";
}

TEST(LocalNccTest, ANonFiniteVoxelIsNamed) {
  const at::Tensor good = Random({1, 1, 6, 6, 6}, 1, at::kFloat);
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    at::Tensor image = good.clone();
    image[0][0][3][4][5] = bad;
    EXPECT_THAT(ErrorOf(image, good), HasSubstr("fixed = "));
    EXPECT_THAT(ErrorOf(good, image), HasSubstr("moving = "));
    EXPECT_THAT(ErrorOf(good, image), HasSubstr("[0, 0, 3, 4, 5]"));
    at::Tensor first = good.clone();
    first[0][0][0][0][0] = bad;
    EXPECT_THAT(ErrorOf(first, good), HasSubstr("[0, 0, 0, 0, 0]"));
  }
  EXPECT_THAT(ErrorOf(good.to(at::kDouble) * 1e200, good),
              HasSubstr("too large"));
}

TEST(LocalNccTest, WrongImagesAreRefused) {
  EXPECT_THAT(ErrorOf(Random({1, 1, 6, 6, 6}, 1), Random({1, 1, 6, 6, 5}, 1)),
              HasSubstr("LocalNcc: wanted two images of one shape"));
  EXPECT_THROW(LocalNcc()(Random({1, 1, 6, 6}, 1, at::kInt),
                          Random({1, 1, 6, 6}, 1, at::kInt)),
               c10::TypeError);
}

TEST(LocalNccTest, WrongOptionsAreRefused) {
  for (const int64_t window : {-1, 0, 8}) {
    EXPECT_THROW(WithWindow(window), c10::ValueError) << window;
  }
  for (const double epsilon :
       {-1.0, 0.0, 2.0, std::numeric_limits<double>::quiet_NaN()}) {
    LocalNccOptions options;
    options.epsilon = epsilon;
    EXPECT_THROW(LocalNcc{options}, c10::ValueError) << epsilon;
  }
}

TEST(LocalNccTest, ASecondDerivativeIsRefusedRatherThanWrong) {
  const at::Tensor fixed = Random({1, 1, 6, 6}, 1);
  const at::Tensor moving = Random({1, 1, 6, 6}, 2).requires_grad_();
  EXPECT_THROW(LocalNcc()(fixed, moving)
                   .backward({}, /*retain_graph=*/std::nullopt,
                             /*create_graph=*/true),
               c10::Error);
}

TEST(LocalNccTest, AMaskEndsWindowsAsTheBorderDoes) {
  const at::Tensor fixed = Random({1, 1, 7, 8, 9}, 1);
  const at::Tensor moving = fixed + Random({1, 1, 7, 8, 9}, 2);
  at::Tensor mask = at::zeros({1, 1, 7, 8, 9}, at::kBool);
  mask.slice(4, 0, 5).fill_(true);
  at::Tensor bad = moving.clone();
  bad.slice(4, 5).fill_(std::numeric_limits<double>::quiet_NaN());
  for (const double sigma : {0.0, 1.5}) {
    LocalNccOptions options;
    options.window = 5;
    options.sigma = sigma;
    const LocalNcc ncc(options);
    const at::Tensor own = bad.clone().requires_grad_();
    const at::Tensor masked = ncc.Masked(fixed, own, mask);
    EXPECT_NEAR(masked.item<double>(),
                ncc(fixed.slice(4, 0, 5), moving.slice(4, 0, 5)).item<double>(),
                1e-12);
    masked.backward();
    EXPECT_TRUE(own.grad().isfinite().all().item<bool>());
    EXPECT_LT(
        GradientError(
            [&](const auto& in) { return ncc.Masked(in[0], in[1], mask); },
            {fixed, moving}),
        1e-6);
    EXPECT_EQ(ncc.Masked(fixed, moving, mask.logical_and(mask.logical_not()))
                  .item<double>(),
              0);
  }
}

TEST(LocalNccTest, GaussianWindowsScalesAndWeightsHaveRightGradients) {
  LocalNccOptions options;
  options.window = 5;
  options.sigma = 1.2;
  options.scales = 2;
  const LocalNcc ncc(options);
  const at::Tensor fixed = Random({1, 2, 5, 1, 6}, 1);
  const at::Tensor weight = Random({1, 1, 5, 1, 6}, 3);
  EXPECT_LT(GradientError([&](const auto& in) { return ncc(in[0], in[1]); },
                          {fixed, fixed + Random({1, 2, 5, 1, 6}, 2)}),
            1e-6);
  EXPECT_LT(
      GradientError([&](const auto& in) { return ncc(in[0], in[1], weight); },
                    {fixed, fixed + Random({1, 2, 5, 1, 6}, 2)}),
      1e-6);
  EXPECT_NEAR(ncc(fixed, fixed).item<double>(), -1, 1e-4);
  EXPECT_EQ(ncc(fixed, fixed, weight * 0).item<double>(), 0);
}

TEST(LocalNccTest, ScalesStopWhereNothingIsLeftToHalve) {
  LocalNccOptions options;
  options.scales = 2;
  // Of 2x2 each; then nothing is left to halve.
  const at::Tensor fixed = Random({1, 1, 2, 2}, 1);
  const at::Tensor moving = Random({1, 1, 2, 2}, 2);
  // One voxel is constant: 0.
  EXPECT_NEAR(LocalNcc(options)(fixed, moving).item<double>(),
              LocalNcc()(fixed, moving).item<double>() / 2, 1e-12);
  options.scales = 3;
  EXPECT_NEAR(LocalNcc(options)(fixed, moving).item<double>(),
              LocalNcc()(fixed, moving).item<double>() / 2, 1e-12);
  options.scales = 0;
  EXPECT_THROW(LocalNcc{options}, c10::ValueError);
  options.scales = 1;
  options.sigma = -1;
  EXPECT_THROW(LocalNcc{options}, c10::ValueError);
}

}  // namespace
}  // namespace mir::losses
