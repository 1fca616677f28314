#include "mir/geometry/fit_velocity.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "mir/geometry/compose.h"
#include "mir/geometry/vec_int.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::geometry {
namespace {

using ::mir::testing::AllClose;
using ::mir::testing::TensorEq;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// A smooth field of about `reach` voxels that ends at the faces.
at::Tensor Smooth(int64_t side, double reach) {
  const at::Tensor bump =
      at::arange(side, at::kFloat).mul_(M_PI / (side - 1)).sin().pow_(2);
  const at::Tensor window = bump.view({-1, 1}) * bump;
  return reach * at::stack({window, -window * bump}).unsqueeze(0);
}

double Worst(const at::Tensor& difference) {
  return difference.abs().max().item<double>();
}

FitVelocityOptions Quick() {
  FitVelocityOptions options;
  options.steps = 5;
  options.iterations = 200;
  options.smallest_change = 0;
  options.learning_rate = 0.02;
  return options;
}

TEST(FitVelocityTest, FindsTheVelocityOfADisplacement) {
  const at::Tensor velocity = Smooth(24, 3);
  const at::Tensor displacement = VecInt(velocity, 5);
  const at::NoGradGuard no_grad;  // The fit needs none of its own.
  const VelocityFit fit = FitVelocity(displacement, Quick());
  EXPECT_EQ(fit.iterations, 200);
  EXPECT_LT(fit.objective, 1e-4);
  EXPECT_LT(Worst(fit.displacement - displacement), 0.05);
  EXPECT_LT(Worst(fit.velocity - velocity), Worst(velocity) / 20);
  EXPECT_FALSE(fit.velocity.requires_grad());
}

TEST(FitVelocityTest, StopsWhenTheObjectiveNoLongerChanges) {
  FitVelocityOptions options = Quick();
  options.smallest_change = 1;
  EXPECT_EQ(FitVelocity(Smooth(12, 1), options).iterations, 2);
}

TEST(FitVelocityFastTest, ComesCloseInFewerIterations) {
  const at::Tensor displacement = VecInt(Smooth(25, 3), 5);  // An odd size.
  FitVelocityFastOptions options;
  options.learning_rate = 0.02;
  const at::Tensor velocity = FitVelocityFast(displacement, options);
  EXPECT_LT(Worst(VecInt(velocity, 5) - displacement), 0.15);
  // From the answer, with nothing to do, it stays there.
  options.initial_velocity = Smooth(25, 3);
  options.coarse_iterations = options.fine_iterations = 0;
  options.downsampling = 1;
  EXPECT_THAT(FitVelocityFast(displacement, options),
              TensorEq(options.initial_velocity));
}

TEST(FitVelocityFastTest, AdamBeginsAnewAtTheFinerScale) {
  const at::Tensor displacement = VecInt(Smooth(12, 2), 5);
  FitVelocityFastOptions options;
  options.smallest_change = 0;
  options.downsampling = 1;
  options.coarse_iterations = 6;
  options.fine_iterations = 4;
  const at::Tensor both = FitVelocityFast(displacement, options);

  options.fine_iterations = 0;
  options.initial_velocity = FitVelocityFast(displacement, options);
  options.coarse_iterations = 0;
  options.fine_iterations = 4;
  EXPECT_THAT(FitVelocityFast(displacement, options), TensorEq(both));
}

TEST(InvertViaVelocityTest, ComposesToTheIdentity) {
  const at::Tensor displacement = VecInt(Smooth(24, 2), 5);
  const at::Tensor inverse = InvertViaVelocity(displacement, Quick());
  EXPECT_LT(Worst(Compose(displacement, inverse)), 0.05);  // Voxels.
  EXPECT_LT(Worst(Compose(inverse, displacement)), 0.05);
}

TEST(EnsembleAverageTest, IsTheExponentialOfTheMeanVelocity) {
  const at::Tensor velocity = Smooth(24, 2);
  const at::Tensor displacement = VecInt(velocity, 5);
  const at::Tensor zero = at::zeros_like(velocity);
  EXPECT_THAT(EnsembleAverage({{velocity, true, 3}, {zero, true, 1}}, Quick()),
              AllClose(VecInt(0.75 * velocity, 5), 1e-6));
  EXPECT_LT(Worst(EnsembleAverage({{displacement}, {velocity, true}}, Quick()) -
                  displacement),
            0.05);
}

TEST(FitVelocityTest, SaysWhatWasWantedAndWhatCame) {
  const auto refuses = [](const auto& function, const char* message) {
    EXPECT_THAT(function, ThrowsMessage<c10::ValueError>(HasSubstr(message)));
  };
  const at::Tensor field = at::zeros({1, 2, 5, 6});
  FitVelocityOptions options;
  options.iterations = 0;
  refuses([&] { FitVelocity(field, options); }, "at least 1 iteration");
  options = {};
  options.steps = 33;
  refuses([&] { FitVelocity(field, options); }, "0 to 32 steps");
  refuses([] { FitVelocity(at::zeros({1, 1, 5, 6})); }, "wanted displacement");
  FitVelocityFastOptions fast;
  fast.downsampling = 0;
  refuses([&] { FitVelocityFast(field, fast); }, "downsampling");
  fast = {};
  fast.initial_velocity = at::zeros({1, 2, 5, 5});
  refuses([&] { FitVelocityFast(field, fast); }, "initial_velocity");
  refuses([] { EnsembleAverage({}); }, "came none");
  refuses([&] { EnsembleAverage({{field, true, 0}}); }, "not all 0");
  refuses([&] { EnsembleAverage({{field, true, -1}}); }, "weights of 0");
  refuses(
      [&] {
        EnsembleAverage({{field}, {at::zeros({1, 2, 5, 5})}});
      },
      "one shape");
}

}  // namespace
}  // namespace mir::geometry
