#include "mir/losses/window_correlation.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/rand.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "mir/losses/box_sum.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::losses {
namespace {

using mir::testing::AllClose;
using mir::testing::TensorEq;

struct Case {
  const char* name;
  std::vector<int64_t> sizes;
  WindowCorrelationOptions options;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

WindowCorrelationOptions Options(std::vector<int64_t> window) {
  WindowCorrelationOptions options;
  options.loss = "Test";
  options.window = std::move(window);
  return options;
}

WindowCorrelationOptions Clipped(std::vector<int64_t> window) {
  WindowCorrelationOptions options = Options(std::move(window));
  options.formula.clip_window = true;
  options.formula.per_voxel = true;
  options.formula.smallest_variance = 0;
  options.relative_floor = 1e-3;
  return options;
}

WindowCorrelationOptions Added(std::vector<int64_t> window) {
  WindowCorrelationOptions options = Options(std::move(window));
  options.formula.add = 1e-2;
  return options;
}

WindowCorrelationOptions Plain(std::vector<int64_t> window) {
  WindowCorrelationOptions options = Options(std::move(window));
  options.formula.per_voxel = true;
  options.formula.kind = kernels::CorrelationKind::kPlain;
  options.formula.add = 1e-5;
  return options;
}

WindowCorrelationOptions Limited(std::vector<int64_t> window) {
  WindowCorrelationOptions options = Options(std::move(window));
  options.formula.per_voxel = true;
  options.formula.smallest_den = 6e-3;  // Cuts off some of the windows.
  return options;
}

WindowCorrelationOptions Divided(std::vector<int64_t> window) {
  WindowCorrelationOptions options = Options(std::move(window));
  options.formula.divisor = 500;
  options.formula.add = 1e-2;
  return options;
}

WindowCorrelationOptions Gaussian(WindowCorrelationOptions options,
                                  double sigma) {
  for (const int64_t width : options.window) {
    options.taps.push_back(GaussianTaps(width, sigma));
  }
  return options;
}

WindowCorrelationOptions Structural(std::vector<int64_t> window) {
  WindowCorrelationOptions options = Options(std::move(window));
  options.formula.kind = kernels::CorrelationKind::kStructural;
  options.formula.c1 = 1e-4;
  options.formula.c2 = 9e-4;
  return options;
}

WindowCorrelationOptions ClippedStructural(std::vector<int64_t> window) {
  WindowCorrelationOptions options = Structural(std::move(window));
  options.formula.clip_window = true;
  return options;
}

at::Tensor Random(at::IntArrayRef sizes, uint64_t seed) {
  return at::rand(sizes, at::detail::createCPUGenerator(seed),
                  at::TensorOptions(at::kDouble));
}

// The value and both gradients.
std::vector<at::Tensor> ValueAndGradients(
    at::Tensor (*function)(const at::Tensor&, const at::Tensor&,
                           const at::Tensor&, const WindowCorrelationOptions&),
    const at::Tensor& x, const at::Tensor& y,
    const WindowCorrelationOptions& options, const at::Tensor& weight = {}) {
  const at::Tensor own_x = x.detach().clone().requires_grad_();
  const at::Tensor own_y = y.detach().clone().requires_grad_();
  const at::Tensor value = function(own_x, own_y, weight, options);
  (value * 3).backward();
  return {value.detach(), own_x.grad(), own_y.grad()};
}

class WindowCorrelationTest : public ::testing::TestWithParam<Case> {};

TEST_P(WindowCorrelationTest, TheKernelEqualsTheOperators) {
  const Case& one = GetParam();
  const at::Tensor x = Random(one.sizes, 1) + 0.5;
  const at::Tensor y = 0.5 * x + Random(one.sizes, 2);
  const auto kernel =
      ValueAndGradients(MeanWindowCorrelation, x, y, one.options);
  const auto operators =
      ValueAndGradients(MeanWindowCorrelationByOperators, x, y, one.options);
  EXPECT_THAT(kernel[0], AllClose(operators[0], 1e-13));
  EXPECT_THAT(kernel[1], AllClose(operators[1], 1e-11));
  EXPECT_THAT(kernel[2], AllClose(operators[2], 1e-11));
}

TEST_P(WindowCorrelationTest, SoItDoesWithWeights) {
  const Case& one = GetParam();
  const at::Tensor x = Random(one.sizes, 1) + 0.5;
  const at::Tensor y = 0.5 * x + Random(one.sizes, 2);
  const at::Tensor weight = Random(one.sizes, 3).narrow(1, 0, 1);
  const auto kernel =
      ValueAndGradients(MeanWindowCorrelation, x, y, one.options, weight);
  const auto operators = ValueAndGradients(MeanWindowCorrelationByOperators, x,
                                           y, one.options, weight);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(kernel[i], AllClose(operators[i], 1e-11)) << i;
  }
}

TEST_P(WindowCorrelationTest, Float32DiffersByItsRoundingOnly) {
  const Case& one = GetParam();
  const at::Tensor x = Random(one.sizes, 1).to(at::kFloat);
  const at::Tensor y = (0.5 * x + Random(one.sizes, 2)).to(at::kFloat);
  const auto narrow =
      ValueAndGradients(MeanWindowCorrelation, x, y, one.options);
  const auto wide = ValueAndGradients(MeanWindowCorrelation, x.to(at::kDouble),
                                      y.to(at::kDouble), one.options);
  EXPECT_EQ(narrow[0].scalar_type(), at::kFloat);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(narrow[i], AllClose(wide[i], 2 * 6e-8)) << i;
  }
}

TEST_P(WindowCorrelationTest, EveryNumberOfThreadsGivesTheSameBits) {
  const Case& one = GetParam();
  const at::Tensor x = Random(one.sizes, 1).to(at::kFloat);
  const at::Tensor y = Random(one.sizes, 2).to(at::kFloat);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const auto alone =
      ValueAndGradients(MeanWindowCorrelation, x, y, one.options);
  for (const int threads : {2, 3}) {
    at::set_num_threads(threads);
    const auto together =
        ValueAndGradients(MeanWindowCorrelation, x, y, one.options);
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT(together[i], TensorEq(alone[i])) << threads << " " << i;
    }
  }
  at::set_num_threads(before);
}

TEST_P(WindowCorrelationTest, OneGradientEqualsThatOfBoth) {
  const Case& one = GetParam();
  const at::Tensor x = Random(one.sizes, 1);
  const at::Tensor y = Random(one.sizes, 2);
  const auto both = ValueAndGradients(MeanWindowCorrelation, x, y, one.options);
  const at::Tensor own_x = x.clone().requires_grad_();
  (MeanWindowCorrelation(own_x, y, one.options) * 3).backward();
  EXPECT_THAT(own_x.grad(), TensorEq(both[1]));
  const at::Tensor own_y = y.clone().requires_grad_();
  (MeanWindowCorrelation(x, own_y, one.options) * 3).backward();
  EXPECT_THAT(own_y.grad(), TensorEq(both[2]));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, WindowCorrelationTest,
    ::testing::ValuesIn(std::vector<Case>{
        // Over 80 slices and 40 rows the kernel works in parts.
        {"Slabs", {1, 1, 167, 3, 12}, Clipped({9, 9, 9})},
        {"Tiles", {1, 1, 5, 70, 12}, Clipped({9, 9, 9})},
        {"SlabsAndTiles", {1, 2, 83, 43, 17}, Added({5, 5, 5})},
        {"WindowWiderThanTheVolume", {2, 1, 4, 5, 6}, Clipped({15, 13, 17})},
        {"ZerosAroundASmallVolume", {2, 1, 4, 5, 6}, Added({15, 13, 17})},
        {"WideWindow", {1, 1, 20, 80, 40}, Clipped({7, 41, 21})},
        {"TwoDimensions", {2, 3, 44, 33}, Clipped({9, 7})},
        {"PlainTwoDimensions", {1, 1, 28, 32}, Plain({9, 9})},
        {"Limited", {1, 1, 9, 10, 11}, Limited({3, 3, 3})},
        {"Divided", {1, 1, 9, 10, 11}, Divided({5, 5, 5})},
        {"OneVoxelWide", {1, 1, 9, 1, 1}, Clipped({3, 3, 3})},
        {"Gaussian", {1, 1, 83, 70, 12}, Gaussian(Plain({5, 7, 9}), 1.5)},
        {"ClippedGaussian", {1, 2, 7, 43, 5}, Gaussian(Clipped({9, 9, 9}), 2)},
        {"Structural", {1, 1, 8, 9, 10}, Structural({7, 7, 7})},
        {"StructuralGaussian",
         {2, 1, 9, 44, 5},
         Gaussian(ClippedStructural({11, 11, 11}), 1.5)},
        {"StructuralTwoDimensions",
         {1, 2, 44, 33},
         Gaussian(Structural({11, 11}), 1.5)},
    }),
    [](const auto& info) { return std::string(info.param.name); });

TEST(WindowCorrelationErrorsTest, TheWindowMustHaveTheImagesAxes) {
  const at::Tensor image = Random({1, 1, 8, 8}, 1);
  EXPECT_THROW(MeanWindowCorrelation(image, image, Clipped({3, 3, 3})),
               c10::ValueError);
}

TEST(WindowCorrelationErrorsTest, TheOperatorsCheckFinitenessWhereAsked) {
  const at::Tensor good = Random({1, 1, 8, 8}, 1);
  const at::Tensor bad = good / (good - good[0][0][2][3]);
  WindowCorrelationOptions options = Clipped({3, 3});
  EXPECT_NO_THROW(MeanWindowCorrelationByOperators(good, bad, {}, options));
  options.check_finite = true;
  EXPECT_THROW(MeanWindowCorrelationByOperators(good, bad, {}, options),
               c10::ValueError);
  EXPECT_THROW(MeanWindowCorrelationByOperators(bad, good, {}, options),
               c10::ValueError);
  EXPECT_NO_THROW(MeanWindowCorrelationByOperators(good, good, {}, options));
}

}  // namespace
}  // namespace mir::losses
