#include "mir/losses/normalized_gradient_field.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <vector>

#include "mir/losses/loss_testing.h"
#include "mir/testing/gradient_check.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::losses {
namespace {

using mir::testing::AllClose;
using mir::testing::GradientError;
using mir::testing::TensorEq;

std::vector<NormalizedGradientFieldOptions> Variants() {
  std::vector<NormalizedGradientFieldOptions> variants;
  for (const bool as_mir : {false, true}) {
    for (const int64_t window : {1, 3, 5}) {
      NormalizedGradientFieldOptions options;
      options.as_mir = as_mir;
      options.smooth_window = window;
      options.edge = as_mir ? 0.05 : 0.1;
      variants.push_back(options);
    }
  }
  return variants;
}

TEST(NormalizedGradientFieldTest, TheKernelEqualsTheOperators) {
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
           {1, 1, 23, 6, 35}, {2, 2, 1, 4, 5}, {1, 2, 9, 18}}) {
    for (const NormalizedGradientFieldOptions& options : Variants()) {
      const at::Tensor fixed = Random(sizes, 1), moving = Random(sizes, 2);
      const auto kernel =
          ValueAndGradients(NormalizedGradientField(options), fixed, moving);
      const auto operators = ValueAndGradients(
          [&](const at::Tensor& f, const at::Tensor& m) {
            return NormalizedGradientFieldByOperators(f, m, options);
          },
          fixed, moving);
      for (int i = 0; i < 3; ++i) {
        EXPECT_THAT(kernel[i], AllClose(operators[i], 1e-11))
            << at::IntArrayRef(sizes) << " window " << options.smooth_window;
      }
    }
  }
}

TEST(NormalizedGradientFieldTest, GradientsEqualDifferences) {
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{1, 1, 4, 5, 6}, {2, 1, 6, 7}}) {
    for (const NormalizedGradientFieldOptions& options : Variants()) {
      EXPECT_LT(GradientError(
                    [&](const auto& in) {
                      return NormalizedGradientField(options)(in[0], in[1]);
                    },
                    {Random(sizes, 1), Random(sizes, 2)}),
                1e-6);
    }
  }
}

TEST(NormalizedGradientFieldTest, AlignedEdgesAreNearZeroAndNoEdgesOne) {
  const at::Tensor image = Random({1, 1, 8, 9, 10}, 1);
  NormalizedGradientFieldOptions options;
  options.smooth_window = 1;
  options.edge = 1e-3;
  const NormalizedGradientField loss(options);
  EXPECT_NEAR(loss(image, image).item<double>(), 0, 1e-2);
  EXPECT_EQ(
      loss(image, at::zeros({1, 1, 8, 9, 10}, at::kDouble) + 3).item<double>(),
      1);
}

TEST(NormalizedGradientFieldTest, ScalingShiftingAndNegatingChangeNothing) {
  const at::Tensor fixed = Random({1, 1, 8, 9, 10}, 1);
  const at::Tensor moving = Random({1, 1, 8, 9, 10}, 2);
  const NormalizedGradientField loss;
  EXPECT_NEAR(loss(3000 * fixed - 1000, -moving).item<double>(),
              loss(fixed, moving).item<double>(), 1e-12);
}

TEST(NormalizedGradientFieldTest, EveryNumberOfThreadsGivesTheSameBits) {
  const at::Tensor fixed = Random({1, 1, 50, 7, 19}, 1, at::kFloat);
  const at::Tensor moving = Random({1, 1, 50, 7, 19}, 2, at::kFloat);
  NormalizedGradientFieldOptions options;
  options.as_mir = true;
  const NormalizedGradientField loss(options);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const auto alone = ValueAndGradients(loss, fixed, moving);
  at::set_num_threads(3);
  const auto together = ValueAndGradients(loss, fixed, moving);
  at::set_num_threads(before);
  for (int i = 0; i < 3; ++i) EXPECT_THAT(together[i], TensorEq(alone[i]));
}

TEST(NormalizedGradientFieldTest, WrongOptionsAndImagesAreRefused) {
  NormalizedGradientFieldOptions options;
  options.smooth_window = 2;
  EXPECT_THROW(NormalizedGradientField{options}, c10::ValueError);
  options = {};
  options.edge = 0;
  EXPECT_THROW(NormalizedGradientField{options}, c10::ValueError);
  EXPECT_THROW(NormalizedGradientField()(at::zeros({1, 1, 4, 4}),
                                         at::zeros({1, 1, 4, 5})),
               c10::ValueError);
}

}  // namespace
}  // namespace mir::losses
