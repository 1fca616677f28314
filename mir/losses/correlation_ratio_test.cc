#include "mir/losses/correlation_ratio.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "mir/losses/loss_testing.h"
#include "mir/testing/gradient_check.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::losses {
namespace {

using mir::testing::GradientError;
using mir::testing::TensorEq;

// An image [N, 1, D, H, W] with a slice behind it that holds 0 and 1: its
// range, whatever the rest is.
at::Tensor WithRange(const at::Tensor& image) {
  at::Tensor ends = at::full(image.sizes(), 0., at::kDouble).narrow(4, 0, 1);
  ends.select(3, 0).fill_(1);
  return at::cat({image, ends}, 4);
}

CorrelationRatioOptions WithBins(int64_t bins, bool as_mir) {
  CorrelationRatioOptions options;
  options.bins = bins;
  options.as_mir = as_mir;
  return options;
}

TEST(CorrelationRatioTest, GradientsEqualDifferences) {
  const at::Tensor fixed = 0.05 + 0.9 * Random({2, 1, 4, 3, 5}, 1);
  const at::Tensor moving = 0.5 * fixed + 0.4 * Random({2, 1, 4, 3, 5}, 2);
  for (const bool as_mir : {false, true}) {
    const CorrelationRatioOptions options = WithBins(8, as_mir);
    EXPECT_LT(GradientError(
                  [&](const auto& in) {
                    return CorrelationRatio(options)(WithRange(in[0]),
                                                     WithRange(in[1]));
                  },
                  {fixed, moving}),
              1e-5);
    LocalCorrelationRatioOptions local;
    local.ratio = options;
    local.window = 3;
    EXPECT_LT(GradientError(
                  [&](const auto& in) {
                    return LocalCorrelationRatio(local)(WithRange(in[0]),
                                                        WithRange(in[1]));
                  },
                  {fixed, moving}),
              1e-5);
  }
}

TEST(CorrelationRatioTest, AFunctionOfTheOtherImageIsExplained) {
  const at::Tensor fixed = Random({1, 1, 24, 24, 24}, 1);
  const CorrelationRatio loss(WithBins(64, false));
  // Monotonic: both explain each other.
  EXPECT_LT(loss(fixed, 3 - 2 * fixed.square()).item<double>(), -0.97);
  // Noise explains nothing.
  EXPECT_GT(loss(fixed, Random({1, 1, 24, 24, 24}, 2)).item<double>(), -0.02);
}

TEST(CorrelationRatioTest, ConstantImagesGiveZeroAndNoGradient) {
  const std::vector<int64_t> sizes = {1, 1, 6, 7, 8};
  const at::Tensor flat = at::full(sizes, 0.1, at::kFloat).requires_grad_();
  const at::Tensor random = Random(sizes, 1, at::kFloat);
  const at::Tensor value = CorrelationRatio()(random, flat);
  value.backward();
  EXPECT_NEAR(value.item<double>(), 0, 1e-9);
  EXPECT_TRUE(flat.grad().isfinite().all().item<bool>());
}

TEST(CorrelationRatioTest, EveryNumberOfThreadsGivesTheSameBits) {
  const at::Tensor fixed = Random({1, 1, 40, 40, 41}, 1, at::kFloat);
  const at::Tensor moving = Random({1, 1, 40, 40, 41}, 2, at::kFloat);
  const auto run = [&](int threads) {
    at::set_num_threads(threads);
    const at::Tensor m = moving.clone().requires_grad_();
    const at::Tensor value = CorrelationRatio()(fixed, m);
    value.backward();
    return std::vector<at::Tensor>{value.detach(), m.grad()};
  };
  const int before = at::get_num_threads();
  const auto alone = run(1), together = run(3);
  at::set_num_threads(before);
  EXPECT_THAT(together[0], TensorEq(alone[0]));
  EXPECT_THAT(together[1], TensorEq(alone[1]));
}

TEST(CorrelationRatioTest, WrongOptionsAreRefused) {
  for (const int64_t bins : {-1, 1, 257}) {
    EXPECT_THROW(CorrelationRatio{WithBins(bins, false)}, c10::ValueError);
  }
  CorrelationRatioOptions options;
  options.sigma = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(CorrelationRatio{options}, c10::ValueError);
}

}  // namespace
}  // namespace mir::losses
