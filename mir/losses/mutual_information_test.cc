#include "mir/losses/mutual_information.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "mir/losses/compat/mutual_information.h"
#include "mir/losses/local_mutual_information.h"
#include "mir/losses/loss_testing.h"
#include "mir/testing/gradient_check.h"

namespace mir::losses {
namespace {

using mir::testing::GradientError;

MutualInformationOptions With(ParzenKind kind, int64_t bins) {
  MutualInformationOptions options;
  options.kind = kind;
  options.bins = bins;
  options.range = {-0.1, 1.1};
  return options;
}

constexpr ParzenKind kKinds[] = {ParzenKind::kCubicSpline,
                                 ParzenKind::kGaussian};

TEST(MutualInformationTest, GradientsEqualDifferences) {
  const at::Tensor fixed = Random({2, 1, 3, 4, 5}, 1);
  const at::Tensor moving = 0.5 * fixed + 0.5 * Random({2, 1, 3, 4, 5}, 2);
  const at::Tensor weight = Random({1, 1, 3, 4, 5}, 3);
  for (const ParzenKind kind : kKinds) {
    const MutualInformation mi(With(kind, 8));
    const NormalizedMutualInformation nmi(With(kind, 8));
    EXPECT_LT(GradientError([&](const auto& in) { return mi(in[0], in[1]); },
                            {fixed, moving}),
              1e-5);
    EXPECT_LT(GradientError([&](const auto& in) { return nmi(in[0], in[1]); },
                            {fixed, moving}),
              1e-5);
    EXPECT_LT(
        GradientError([&](const auto& in) { return mi(in[0], in[1], weight); },
                      {fixed, moving}),
        1e-5);
  }
  LocalMutualInformationOptions local;
  local.bins = 8;
  local.patch = 3;
  local.range = {-0.1, 1.1};
  EXPECT_LT(GradientError(
                [&](const auto& in) {
                  return LocalMutualInformation(local)(in[0], in[1]);
                },
                {fixed, moving}),
            1e-5);
}

TEST(MutualInformationTest, MirsOwnGradientsEqualDifferences) {
  const at::Tensor fixed = 0.05 + 0.9 * Random({2, 1, 3, 4, 5}, 1);
  const at::Tensor moving = 0.5 * fixed + 0.5 * Random({2, 1, 3, 4, 5}, 2);
  const auto error = [&](const auto& loss) {
    return GradientError([&](const auto& in) { return loss(in[0], in[1]); },
                         {fixed, moving});
  };
  EXPECT_LT(error(compat::MutualInformation(1, 0, 1.1, 8)), 1e-5);
  EXPECT_LT(error(compat::MattesMutualInformation(8)), 1e-5);
  EXPECT_LT(error(compat::NormalizedMutualInformation(8)), 1e-5);
}

TEST(MutualInformationTest, TwoLevelsThatFollowEachOtherShareOneBit) {
  // Half the voxels each: log 2 nats, less what the windows blur.
  at::Tensor image = at::zeros({1, 1, 8, 8, 8}, at::kDouble);
  image.slice(2, 0, 4).fill_(1);
  for (const ParzenKind kind : kKinds) {
    MutualInformationOptions options;
    options.kind = kind;
    EXPECT_NEAR(MutualInformation(options)(image, 1 - image).item<double>(),
                -std::log(2.), 1e-6);
    EXPECT_NEAR(
        MutualInformation(options)(image, image.transpose(2, 3)).item<double>(),
        0, 1e-6);
  }
}

TEST(MutualInformationTest, ConstantImagesShareNothing) {
  for (const auto& [fixed, moving] :
       {std::pair(at::zeros({1, 1, 8, 8}), at::ones({1, 1, 8, 8})),
        std::pair(at::zeros({1, 1, 8, 8}), at::zeros({1, 1, 8, 8})),
        std::pair(at::full({1, 1, 8, 8}, 3e38),
                  Random({1, 1, 8, 8}, 1).to(at::kFloat))}) {
    for (const ParzenKind kind : kKinds) {
      MutualInformationOptions options;
      options.kind = kind;
      const at::Tensor f = fixed.clone().requires_grad_();
      const at::Tensor m = moving.clone().requires_grad_();
      const at::Tensor mi = MutualInformation(options)(f, m);
      const at::Tensor nmi = NormalizedMutualInformation(options)(f, m);
      (mi + nmi).backward();
      EXPECT_NEAR(mi.item<double>(), 0, 1e-6);
      EXPECT_NEAR(nmi.item<double>(), -1, 1e-6);
      EXPECT_TRUE(f.grad().isfinite().all().item<bool>());
      EXPECT_TRUE(m.grad().isfinite().all().item<bool>());
    }
  }
}

TEST(MutualInformationTest, ScalingAndShiftingChangeNothing) {
  const at::Tensor fixed = Random({1, 1, 8, 9, 10}, 1);
  const at::Tensor moving = fixed + Random({1, 1, 8, 9, 10}, 2);
  EXPECT_NEAR(
      MutualInformation()(3000 * fixed - 1000, 255 * moving).item<double>(),
      MutualInformation()(fixed, moving).item<double>(), 1e-9);
}

TEST(MutualInformationTest, WrongOptionsAreRefused) {
  for (const int64_t bins : {-1, 0, 1, 3, 257}) {
    EXPECT_THROW(MutualInformation{With(ParzenKind::kCubicSpline, bins)},
                 c10::ValueError)
        << bins;
    EXPECT_THROW(
        NormalizedMutualInformation{With(ParzenKind::kCubicSpline, bins)},
        c10::ValueError)
        << bins;
  }
  MutualInformationOptions options;
  options.range = {1, 1};
  EXPECT_THROW(MutualInformation{options}, c10::ValueError);
  options = With(ParzenKind::kGaussian, 32);
  options.sigma = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(MutualInformation{options}, c10::ValueError);
}

}  // namespace
}  // namespace mir::losses
