#include "mir/losses/mind_ssc.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "mir/losses/loss_testing.h"
#include "mir/testing/gradient_check.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::losses {
namespace {

using mir::testing::AllClose;
using mir::testing::GradientError;
using mir::testing::TensorEq;

TEST(MindSscTest, TheKernelEqualsTheOperators) {
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
           {1, 1, 45, 7, 19}, {2, 2, 3, 1, 5}, {1, 2, 9, 8}}) {
    for (const int64_t radius : {0, 1, 2}) {
      for (const int64_t dilation : {1, 2}) {
        MindSscOptions options;
        options.radius = radius;
        options.dilation = dilation;
        const at::Tensor fixed = Random(sizes, 1), moving = Random(sizes, 2);
        const auto kernel = ValueAndGradients(MindSsc(options), fixed, moving);
        const auto operators = ValueAndGradients(
            [&](const at::Tensor& f, const at::Tensor& m) {
              return MindSscByOperators(f, m, options);
            },
            fixed, moving);
        for (int i = 0; i < 3; ++i) {
          EXPECT_THAT(kernel[i], AllClose(operators[i], 1e-9))
              << at::IntArrayRef(sizes) << " radius " << radius << " dilation "
              << dilation;
        }
      }
    }
  }
}

TEST(MindSscTest, GradientsEqualDifferences) {
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{1, 1, 5, 4, 6}, {2, 1, 6, 7}}) {
    MindSscOptions options;
    options.radius = 1;
    EXPECT_LT(
        GradientError(
            [&](const auto& in) { return MindSsc(options)(in[0], in[1]); },
            {Random(sizes, 1), Random(sizes, 2)}),
        1e-6);
  }
}

TEST(MindSscTest, ConstantImagesHaveADescriptorOfOneAndNoGradient) {
  const std::vector<int64_t> sizes = {1, 1, 8, 9, 10};
  const at::Tensor zeros = at::zeros(sizes);
  for (const auto& [fixed, moving] :
       {std::pair(zeros, zeros), std::pair(zeros + 0.5, zeros + 0.5)}) {
    const auto found = ValueAndGradients(MindSsc(), fixed, moving);
    EXPECT_THAT(found[0], TensorEq(at::zeros({})));
    EXPECT_THAT(found[1], TensorEq(zeros));
    EXPECT_THAT(found[2], TensorEq(zeros));
  }
  const auto found =
      ValueAndGradients(MindSsc(), Random(sizes, 1, at::kFloat), zeros);
  EXPECT_GT(found[0].item<double>(), 0);
  EXPECT_LT(found[0].item<double>(), 1);
  EXPECT_TRUE(found[1].isfinite().all().item<bool>());
  EXPECT_THAT(found[2], TensorEq(zeros));
}

TEST(MindSscTest, ScalingShiftingAndNegatingChangeNothing) {
  const at::Tensor fixed = Random({1, 1, 8, 9, 10}, 1);
  const at::Tensor moving = Random({1, 1, 8, 9, 10}, 2);
  const double value = MindSsc()(fixed, moving).item<double>();
  EXPECT_NEAR(MindSsc()(3000 * fixed - 1000, -moving).item<double>(), value,
              1e-11);
}

TEST(MindSscTest, EveryNumberOfThreadsGivesTheSameBits) {
  const at::Tensor fixed = Random({1, 1, 90, 7, 19}, 1, at::kFloat);
  const at::Tensor moving = Random({1, 1, 90, 7, 19}, 2, at::kFloat);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const auto alone = ValueAndGradients(MindSsc(), fixed, moving);
  at::set_num_threads(3);
  const auto together = ValueAndGradients(MindSsc(), fixed, moving);
  at::set_num_threads(before);
  for (int i = 0; i < 3; ++i) EXPECT_THAT(together[i], TensorEq(alone[i]));
}

TEST(MindSscTest, WrongOptionsAndImagesAreRefused) {
  MindSscOptions options;
  options.radius = -1;
  EXPECT_THROW(MindSsc{options}, c10::ValueError);
  options = {};
  options.dilation = 0;
  EXPECT_THROW(MindSsc{options}, c10::ValueError);
  EXPECT_THROW(MindSsc()(at::zeros({1, 1, 4, 4}), at::zeros({1, 1, 4, 5})),
               c10::ValueError);
  EXPECT_THROW(MindSscDescriptor(at::zeros({1, 2, 4, 4, 4})), c10::ValueError);
}

}  // namespace
}  // namespace mir::losses
