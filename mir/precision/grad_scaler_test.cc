#include "mir/precision/grad_scaler.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>
#include <vector>

#include "mir/precision/autocast.h"

namespace mir::precision {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

GradScalerOptions Options() {
  GradScalerOptions options;
  options.init_scale = 1024;
  options.growth_interval = 2;
  return options;
}

// One weight, 1 at first, whose gradient is what the loss is multiplied by.
struct Model {
  Model() : optimizer({weight}, torch::optim::SGDOptions(0.5)) {}

  at::Tensor Loss(double gradient) {
    optimizer.zero_grad();
    return (weight * gradient).sum();
  }
  double value() const { return weight.item<double>(); }

  at::Tensor weight = at::ones({1}).requires_grad_();
  torch::optim::SGD optimizer;
};

// A whole training step; returns whether the optimizer stepped.
bool Train(GradScaler& scaler, Model& model, double gradient) {
  scaler.Scale(model.Loss(gradient)).backward();
  const bool stepped = scaler.Step(model.optimizer);
  scaler.Update();
  return stepped;
}

TEST(GradScalerTest, Float16OnCudaAloneNeedsIt) {
  EXPECT_TRUE(NeedsGradScaler(Precision::kFloat16, at::kCUDA));
  EXPECT_FALSE(NeedsGradScaler(Precision::kFloat16, at::kCPU));
  EXPECT_FALSE(NeedsGradScaler(Precision::kBFloat16, at::kCUDA));
  EXPECT_FALSE(NeedsGradScaler(Precision::kFloat32, at::kCUDA));
}

TEST(GradScalerTest, PassesThroughWhereNotEnabled) {
  GradScalerOptions options = Options();
  options.enabled = false;
  GradScaler scaler(options);
  EXPECT_FALSE(scaler.enabled());
  Model model;
  const at::Tensor loss = model.Loss(1);
  EXPECT_TRUE(scaler.Scale(loss).is_same(loss));
  loss.backward();
  scaler.Unscale(model.optimizer);
  EXPECT_TRUE(scaler.Step(model.optimizer));
  scaler.Update();
  EXPECT_EQ(model.value(), 0.5);
  EXPECT_EQ(scaler.scale(), 1);
  scaler.set_state(GradScalerState());
  EXPECT_TRUE(Train(scaler, model, 1));
}

TEST(GradScalerTest, TheStepIsThatOfTheUnscaledGradient) {
  GradScaler scaler(Options());
  Model model;
  const at::Tensor loss = model.Loss(1);
  const at::Tensor scaled = scaler.Scale(loss);
  EXPECT_EQ(scaled.item<double>(), 1024);
  scaled.backward();
  EXPECT_EQ(model.weight.grad().item<double>(), 1024);
  EXPECT_TRUE(scaler.Step(model.optimizer));
  EXPECT_EQ(model.value(), 0.5);
}

TEST(GradScalerTest, Float32WeightsTakeStepsThatSixteenBitsDoNotHold) {
  GradScalerOptions options = Options();
  options.enabled = NeedsGradScaler(Precision::kBFloat16, at::kCPU);
  GradScaler scaler(options);
  Model model;
  const Autocast autocast(at::kCPU, Precision::kBFloat16);
  EXPECT_TRUE(Train(scaler, model, /*gradient=*/2e-3));
  EXPECT_FLOAT_EQ(model.value(), 0.999);
  EXPECT_EQ(at::full({}, 0.999, at::kBFloat16).item<double>(), 1);
}

TEST(GradScalerTest, UnscaledGradientsCanBeClippedBeforeTheStep) {
  GradScaler scaler(Options());
  Model model;
  scaler.Scale(model.Loss(4)).backward();
  scaler.Unscale(model.optimizer);
  EXPECT_EQ(model.weight.grad().item<double>(), 4);
  model.weight.mutable_grad().clamp_(-1, 1);
  EXPECT_TRUE(scaler.Step(model.optimizer));
  EXPECT_EQ(model.value(), 0.5);
}

TEST(GradScalerTest, AnInfinityOrNaNSkipsTheStepAndLowersTheScale) {
  for (const double bad : {kInfinity, -kInfinity, std::nan("")}) {
    GradScaler scaler(Options());
    Model model;
    EXPECT_FALSE(Train(scaler, model, bad));
    EXPECT_EQ(model.value(), 1);
    EXPECT_EQ(scaler.scale(), 512);
    EXPECT_TRUE(Train(scaler, model, 1));
    EXPECT_EQ(model.value(), 0.5);
  }
}

TEST(GradScalerTest, TheScaleGrowsAfterTheInterval) {
  GradScaler scaler(Options());
  Model model;
  EXPECT_TRUE(Train(scaler, model, 0.1));
  EXPECT_EQ(scaler.scale(), 1024);
  EXPECT_TRUE(Train(scaler, model, 0.1));
  EXPECT_EQ(scaler.scale(), 2048);
  // A skipped step starts the count again.
  EXPECT_TRUE(Train(scaler, model, 0.1));
  EXPECT_FALSE(Train(scaler, model, kInfinity));
  EXPECT_TRUE(Train(scaler, model, 0.1));
  EXPECT_EQ(scaler.scale(), 1024);
  EXPECT_TRUE(Train(scaler, model, 0.1));
  EXPECT_EQ(scaler.scale(), 2048);
}

TEST(GradScalerTest, RanksAgree) {
  std::vector<bool> found_here;
  bool found_elsewhere = false;
  GradScalerOptions options = Options();
  options.agree = [&](bool found) {
    found_here.push_back(found);
    return found || found_elsewhere;
  };
  GradScaler scaler(options);
  Model model;
  EXPECT_TRUE(Train(scaler, model, 1));
  found_elsewhere = true;
  EXPECT_FALSE(Train(scaler, model, 1));
  EXPECT_EQ(scaler.scale(), 512);
  found_elsewhere = false;
  EXPECT_FALSE(Train(scaler, model, kInfinity));
  EXPECT_THAT(found_here, ElementsAre(false, false, true));
  EXPECT_EQ(model.value(), 0.5);
}

TEST(GradScalerTest, OptimizersShareTheScaleButNotTheSkip) {
  GradScaler scaler(Options());
  Model good, bad;
  (scaler.Scale(good.Loss(1)) + scaler.Scale(bad.Loss(kInfinity))).backward();
  EXPECT_TRUE(scaler.Step(good.optimizer));
  EXPECT_FALSE(scaler.Step(bad.optimizer));
  scaler.Update();
  EXPECT_EQ(good.value(), 0.5);
  EXPECT_EQ(bad.value(), 1);
  EXPECT_EQ(scaler.scale(), 512);
}

TEST(GradScalerTest, GradientsOfSeveralTypesAreUnscaled) {
  GradScaler scaler(Options());
  at::Tensor wide = at::ones({1}, at::kDouble).requires_grad_();
  at::Tensor narrow = at::ones({1}).requires_grad_();
  at::Tensor unused = at::ones({1}).requires_grad_();
  torch::optim::SGD optimizer({wide, narrow, unused},
                              torch::optim::SGDOptions(0.5));
  scaler.Scale((wide * narrow).sum()).backward();
  scaler.Unscale(optimizer);
  EXPECT_EQ(wide.grad().item<double>(), 1);
  EXPECT_EQ(narrow.grad().item<double>(), 1);
}

TEST(GradScalerTest, TheStateContinuesWhereItWasTaken) {
  GradScaler scaler(Options());
  Model model;
  Train(scaler, model, kInfinity);
  Train(scaler, model, 0.1);
  const GradScalerState state = scaler.state();

  GradScalerOptions others = Options();
  others.init_scale = 3;
  others.growth_factor = 5;
  others.backoff_factor = 0.1;
  others.growth_interval = 7;
  GradScaler resumed(others);
  resumed.set_state(state);
  for (const double gradient : {0.1, 0.1, kInfinity, 0.1}) {
    Model own, theirs;
    EXPECT_EQ(Train(scaler, own, gradient), Train(resumed, theirs, gradient));
    EXPECT_EQ(scaler.scale(), resumed.scale());
  }
}

TEST(GradScalerTest, TheStateCountsTowardsGrowth) {
  GradScaler scaler(Options());
  EXPECT_EQ(scaler.state().growth_tracker, 0);
  Model model;
  Train(scaler, model, 0.1);
  const GradScalerState state = scaler.state();
  EXPECT_EQ(state.scale, 1024);
  EXPECT_EQ(state.growth_factor, 2);
  EXPECT_EQ(state.backoff_factor, 0.5);
  EXPECT_EQ(state.growth_interval, 2);
  EXPECT_EQ(state.growth_tracker, 1);
}

TEST(GradScalerErrorsTest, CallsOutOfOrderAreRefused) {
  GradScaler scaler(Options());
  Model model;
  EXPECT_THROW(scaler.Update(), c10::Error);
  EXPECT_THROW(scaler.Step(model.optimizer), c10::Error);  // No gradient.
  scaler.Scale(model.Loss(1)).backward();
  scaler.Unscale(model.optimizer);
  EXPECT_THROW(scaler.Unscale(model.optimizer), c10::Error);
  scaler.Step(model.optimizer);
  EXPECT_THROW(scaler.Step(model.optimizer), c10::Error);
  EXPECT_THROW(scaler.Unscale(model.optimizer), c10::Error);
  scaler.Update();
  EXPECT_THROW(scaler.Update(), c10::Error);
  // Refused calls left nothing behind.
  EXPECT_TRUE(Train(scaler, model, 1));
}

TEST(GradScalerErrorsTest, Float16AndSparseGradientsAreRefused) {
  GradScaler scaler(Options());
  at::Tensor half = at::ones({2}, at::kHalf).requires_grad_();
  torch::optim::SGD optimizer({half}, torch::optim::SGDOptions(0.5));
  half.mutable_grad() = at::ones({2}, at::kHalf);
  try {
    scaler.Step(optimizer);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const c10::ValueError& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("float16"));
  }
  at::Tensor dense = at::ones({2}).requires_grad_();
  torch::optim::SGD other({dense}, torch::optim::SGDOptions(0.5));
  dense.mutable_grad() = at::ones({2}).to_sparse();
  EXPECT_THROW(scaler.Step(other), c10::ValueError);
}

TEST(GradScalerErrorsTest, OptionsOutsideTheirRangesAreRefused) {
  const auto construct = [](auto change) {
    GradScalerOptions options = Options();
    change(options);
    return GradScaler(options);
  };
  EXPECT_THROW(construct([](auto& o) { o.init_scale = 0; }), c10::ValueError);
  EXPECT_THROW(construct([](auto& o) { o.init_scale = kInfinity; }),
               c10::ValueError);
  EXPECT_THROW(construct([](auto& o) { o.growth_factor = 1; }),
               c10::ValueError);
  EXPECT_THROW(construct([](auto& o) { o.backoff_factor = 1; }),
               c10::ValueError);
  EXPECT_THROW(construct([](auto& o) { o.growth_interval = 0; }),
               c10::ValueError);
  GradScaler scaler(Options());
  GradScalerState state = scaler.state();
  state.scale = -1;
  EXPECT_THROW(scaler.set_state(state), c10::ValueError);
  state = scaler.state();
  state.growth_tracker = -1;
  EXPECT_THROW(scaler.set_state(state), c10::ValueError);
}

}  // namespace
}  // namespace mir::precision
