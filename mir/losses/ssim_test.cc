#include "mir/losses/ssim.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <vector>

#include "mir/losses/loss_testing.h"
#include "mir/testing/gradient_check.h"

namespace mir::losses {
namespace {

using mir::testing::GradientError;

std::vector<SsimOptions> Variants() {
  std::vector<SsimOptions> variants;
  for (const bool clip : {true, false}) {
    SsimOptions options;
    options.window = 5;
    options.clip_window = clip;
    options.intensity_range = 1;
    variants.push_back(options);
  }
  return variants;
}

TEST(SsimTest, IsOneLessTheMeanOfTheMap) {
  const at::Tensor fixed = Random({2, 2, 7, 6, 9}, 1);
  const at::Tensor moving = fixed + Random({2, 2, 7, 6, 9}, 2);
  for (const SsimOptions& options : Variants()) {
    const Ssim ssim(options);
    EXPECT_NEAR(ssim(fixed, moving).item<double>(),
                1 - ssim.Map(fixed, moving).mean().item<double>(), 1e-12);
  }
}

TEST(SsimTest, GradientsEqualDifferences) {
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{1, 2, 4, 5, 6}, {2, 1, 7, 8}}) {
    for (const SsimOptions& options : Variants()) {
      EXPECT_LT(GradientError(
                    [&](const auto& in) { return Ssim(options)(in[0], in[1]); },
                    {Random(sizes, 1), Random(sizes, 2)}),
                1e-6);
    }
  }
}

TEST(SsimTest, ConstantImagesAreComparedByTheirMeans) {
  // (2 a b + c) / (a^2 + b^2 + c) with c = 0.01^2, over an own range of 1.
  const at::Tensor one = at::full({1, 1, 12, 12, 12}, 1., at::kDouble);
  EXPECT_NEAR(Ssim()(one, one).item<double>(), 0, 1e-12);
  EXPECT_NEAR(Ssim()(one, one * 2).item<double>(), 1 - (4 + 1e-4) / (5 + 1e-4),
              1e-12);
}

TEST(SsimTest, WideIntensitiesInFloat16StayFinite) {
  const at::Tensor fixed = 255 * Random({1, 1, 24, 24, 24}, 1);
  const at::Tensor moving =
      0.5 * fixed + 0.5 * 255 * Random({1, 1, 24, 24, 24}, 2);
  const at::Tensor half = moving.to(at::kHalf).requires_grad_();
  const at::Tensor found = Ssim()(fixed.to(at::kHalf), half);
  found.backward();
  EXPECT_NEAR(found.item<double>(), Ssim()(fixed, moving).item<double>(), 1e-3);
  EXPECT_TRUE(half.grad().isfinite().all().item<bool>());
}

TEST(SsimTest, AWeightCountsItsWindows) {
  const at::Tensor fixed = Random({1, 1, 6, 7, 8}, 1);
  const at::Tensor moving = Random({1, 1, 6, 7, 8}, 2);
  const at::Tensor weight = Random({1, 1, 6, 7, 8}, 3);
  const Ssim ssim(Variants()[0]);
  const at::Tensor map = ssim.Map(fixed, moving);
  EXPECT_NEAR(ssim(fixed, moving, weight).item<double>(),
              1 - ((map * weight).sum() / weight.sum()).item<double>(), 1e-12);
  EXPECT_EQ(ssim(fixed, moving, weight * 0).item<double>(), 1);
}

TEST(SsimTest, WrongOptionsAreRefused) {
  SsimOptions options;
  options.window = 4;
  EXPECT_THROW(Ssim{options}, c10::ValueError);
  options = {};
  options.sigma = 0;
  EXPECT_THROW(Ssim{options}, c10::ValueError);
  options = {};
  options.intensity_range = -1;
  EXPECT_THROW(Ssim{options}, c10::ValueError);
}

}  // namespace
}  // namespace mir::losses
