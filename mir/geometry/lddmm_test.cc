#include "mir/geometry/lddmm.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "mir/geometry/jacobian.h"
#include "mir/geometry/warp.h"
#include "mir/testing/gradient_check.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::geometry {
namespace {

using ::mir::testing::AllClose;
using ::mir::testing::GradientError;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const double kPi = std::acos(-1.0);
constexpr TimeStepping kBoth[] = {TimeStepping::kEuler,
                                  TimeStepping::kRungeKutta4};
constexpr PathMemory kMemories[] = {PathMemory::kAll, PathMemory::kSteps,
                                    PathMemory::kLogarithmic};

at::Tensor Random(const std::vector<int64_t>& shape, uint64_t seed = 1) {
  return at::rand(shape, at::detail::createCPUGenerator(seed),
                  at::TensorOptions(at::kDouble)) -
         0.5;
}

// A momentum whose velocity is smooth and moves things by about `voxels`.
at::Tensor SmoothMomentum(const std::vector<int64_t>& shape, double voxels,
                          const SobolevOperator& l) {
  const at::Tensor velocity =
      SobolevSmooth(Random(shape), {.alpha = 4, .gamma = 1, .power = 3});
  return ApplySobolev(velocity * (voxels / velocity.abs().max()), l);
}

TEST(ShootTest, AConstantMomentumTranslates) {
  const SobolevOperator l = {.alpha = 2, .gamma = 0.5, .power = 2};
  for (const TimeStepping stepping : kBoth) {
    at::Tensor momentum = at::zeros({1, 3, 5, 6, 7}, at::kDouble);
    momentum.select(1, 0).fill_(0.25);
    momentum.select(1, 2).fill_(-0.5);
    const Geodesic end = Shoot(momentum, l, {.steps = 4, .stepping = stepping});
    EXPECT_THAT(end.momentum, AllClose(momentum, 1e-13));
    // The velocity is m / gamma^2; the inverse goes back.
    EXPECT_THAT(end.displacement, AllClose(momentum * -4, 1e-13));
  }
}

// How far the energy is off after `steps`, relatively.
double EnergyError(const at::Tensor& momentum, const SobolevOperator& l,
                   TimeStepping stepping, int steps) {
  const Geodesic end =
      Shoot(momentum, l, {.steps = steps, .stepping = stepping});
  const double before = KineticEnergy(momentum, l).item<double>();
  const double after = KineticEnergy(end.momentum, l).item<double>();
  return std::abs(after - before) / before;
}

TEST(ShootTest, EnergyIsConservedToTheOrderOfTheTimeSteps) {
  const SobolevOperator l = {.alpha = 1.5, .gamma = 0.3, .power = 2};
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{1, 2, 12, 15}, {1, 3, 8, 9, 10}}) {
    const at::Tensor momentum = SmoothMomentum(shape, 2, l);
    const double euler = EnergyError(momentum, l, TimeStepping::kEuler, 40);
    const double half = EnergyError(momentum, l, TimeStepping::kEuler, 80);
    EXPECT_LE(euler, 0.2);
    EXPECT_NEAR(euler / half, 2, 0.3);
    const double runge_kutta =
        EnergyError(momentum, l, TimeStepping::kRungeKutta4, 8);
    const double half_step =
        EnergyError(momentum, l, TimeStepping::kRungeKutta4, 16);
    EXPECT_LE(runge_kutta, 1e-3);
    // At least of fourth order; an invariant's error may be of one more.
    EXPECT_GE(runge_kutta / half_step, 12);
  }
}

TEST(ShootTest, TheSumOfTheMomentumIsConservedByAnyStep) {
  const SobolevOperator l = {.alpha = 1.5, .gamma = 0.3, .power = 2};
  const at::Tensor momentum = SmoothMomentum({2, 3, 8, 9, 10}, 2, l);
  for (const TimeStepping stepping : kBoth) {
    const Geodesic end = Shoot(momentum, l, {.steps = 3, .stepping = stepping});
    EXPECT_LE(
        (end.momentum - momentum).sum({2, 3, 4}).abs().max().item<double>(),
        1e-14 * momentum.abs().sum().item<double>());
    EXPECT_GT((end.momentum - momentum).abs().max().item<double>(),
              1e-2 * momentum.abs().max().item<double>());
  }
}

// The same geodesic on a grid of n x n voxels: how far the end's momentum is
// from the first one carried by the end's diffeomorphism, det(D w) (D w)^T
// m0(w), where w is the inverse map, relatively.
double CoadjointError(int64_t n) {
  const double scale = static_cast<double>(n) / 32;
  const at::Tensor x = at::arange(n, at::kDouble) / scale - 15.5 / 1.0;
  const at::Tensor bump =
      (-(x.view({n, 1}) + 1).square() / 32 - (x.view({1, n}) - 1).square() / 32)
          .exp();
  const at::Tensor other =
      (-(x.view({n, 1}) - 3).square() / 40 - (x.view({1, n}) + 2).square() / 24)
          .exp();
  const at::Tensor momentum =
      scale * at::stack({bump, -0.6 * other}).unsqueeze(0);
  const SobolevOperator l = {
      .alpha = 6 * scale * scale, .gamma = 0.5, .power = 1};
  const Geodesic end = Shoot(momentum, l, {.steps = 20});
  const at::Tensor carried = Warp(momentum, end.displacement);
  at::Tensor turned = carried.clone();
  for (int64_t j = 0; j < 2; ++j) {
    const at::Tensor derivative =
        (end.displacement.roll(-1, 2 + j) - end.displacement.roll(1, 2 + j)) *
        0.5;
    turned.select(1, j) += (carried * derivative).sum(1);
  }
  const at::Tensor expected =
      JacobianDeterminant(end.displacement).unsqueeze(1) * turned;
  EXPECT_GT(end.displacement.abs().max().item<double>(), 0.5 * scale);
  return ((end.momentum - expected).norm() / momentum.norm()).item<double>();
}

TEST(ShootTest, TheBodysMomentumIsConservedToTheGridsResolution) {
  const double coarse = CoadjointError(32);
  const double fine = CoadjointError(64);
  EXPECT_LE(coarse, 0.05);
  // Differences and linear interpolation are of second order.
  EXPECT_GE(coarse / fine, 3);
}

at::Tensor Both(const Geodesic& end) {
  return at::stack({end.momentum, end.displacement});
}

TEST(ShootTest, GradientsAreThoseOfDifferences) {
  const SobolevOperator l = {.alpha = 1, .gamma = 0.5, .power = 1.5};
  for (const TimeStepping stepping : kBoth) {
    const auto shoot = [&](const std::vector<at::Tensor>& in) {
      return Both(Shoot(
          in[0], l,
          {.steps = 2, .stepping = stepping, .memory = PathMemory::kAll}));
    };
    EXPECT_LE(GradientError(shoot, {Random({1, 2, 4, 5})}), 1e-7);
  }
  const auto energy = [&](const std::vector<at::Tensor>& in) {
    return KineticEnergy(in[0], l);
  };
  EXPECT_LE(GradientError(energy, {Random({2, 2, 4, 5})}), 1e-8);
}

// The gradients of sum(function(inputs)^2).
std::vector<at::Tensor> Gradients(
    const std::function<at::Tensor(const std::vector<at::Tensor>&)>& function,
    std::vector<at::Tensor> inputs) {
  for (at::Tensor& input : inputs) input = input.clone().requires_grad_();
  function(inputs).square().sum().backward();
  for (at::Tensor& input : inputs) input = input.grad();
  return inputs;
}

TEST(ShootTest, GradientsDoNotDependOnWhatIsKept) {
  std::vector<at::Tensor> found;
  for (const PathMemory memory : kMemories) {
    const auto shoot = [&](const std::vector<at::Tensor>& in) {
      return Both(Shoot(in[0], {}, {.steps = 5, .memory = memory}));
    };
    found.push_back(Gradients(shoot, {Random({1, 3, 4, 5, 6})})[0]);
    EXPECT_THAT(found.back(), AllClose(found.front(), 1e-13));
  }
}

// Counts the bytes that are alive.
class CountingAllocator : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* base) : base_(base) {}

  c10::DataPtr allocate(size_t bytes) override {
    struct Block {
      c10::DataPtr data;
      size_t bytes;
    };
    auto* block = new Block{base_->allocate(bytes), bytes};
    alive += static_cast<int64_t>(bytes);
    peak = std::max(peak.load(), alive.load());
    return {block->data.get(), block,
            [](void* context) {
              auto* done = static_cast<Block*>(context);
              alive -= static_cast<int64_t>(done->bytes);
              delete done;
            },
            c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  static std::atomic<int64_t> alive, peak;

 private:
  c10::Allocator* const base_;
};
std::atomic<int64_t> CountingAllocator::alive{0};
std::atomic<int64_t> CountingAllocator::peak{0};

// The most bytes alive at once in a forward and a backward pass, in fields.
double PeakFields(int steps, PathMemory memory) {
  at::Tensor momentum = Random({1, 2, 40, 40});
  momentum.requires_grad_();
  CountingAllocator::peak = CountingAllocator::alive.load();
  const int64_t before = CountingAllocator::alive;
  const Geodesic end = Shoot(
      momentum, {.alpha = 4},
      {.steps = steps, .stepping = TimeStepping::kEuler, .memory = memory});
  (end.momentum.sum() + end.displacement.square().sum()).backward();
  return static_cast<double>(CountingAllocator::peak - before) /
         static_cast<double>(momentum.nbytes());
}

TEST(ShootTest, MemoryDoesNotGrowWithSteps) {
  static CountingAllocator counting(c10::GetCPUAllocator());
  c10::Allocator* const usual = c10::GetCPUAllocator();
  c10::SetCPUAllocator(&counting, /*priority=*/1);
  const double all =
      PeakFields(64, PathMemory::kAll) - PeakFields(16, PathMemory::kAll);
  const double steps =
      PeakFields(64, PathMemory::kSteps) - PeakFields(16, PathMemory::kSteps);
  const double logarithmic = PeakFields(64, PathMemory::kLogarithmic) -
                             PeakFields(16, PathMemory::kLogarithmic);
  c10::SetCPUAllocator(usual, /*priority=*/1);
  // What 48 further steps take: six fields each; momentum, displacement and the
  // generator's state each; those of two more levels.
  EXPECT_GT(all, 5 * 48);
  EXPECT_LE(steps, 2.5 * 48);
  EXPECT_LE(logarithmic, 2 * 2 * 2.5);
}

TEST(TransportTest, AWaveMovesByItsVelocity) {
  // The central difference multiplies this wave's derivative by sin(k) / k, so
  // that is its speed.
  const int64_t n = 16;
  const double k = 2 * kPi / n;
  const at::Tensor x = at::arange(n, at::kDouble).view({1, 1, 1, n}) * k;
  at::Tensor velocity = at::zeros({1, 2, 1, n}, at::kDouble);
  velocity.select(1, 1).fill_(3);
  const at::Tensor moved = Transport(x.cos(), velocity, Carried::kImage);
  EXPECT_THAT(moved, AllClose((x - 3 * std::sin(k)).cos(), 1e-5));
  // A constant velocity carries everything alike.
  for (const Carried carried : {Carried::kDensity, Carried::kMomentum}) {
    const at::Tensor both = x.cos().expand({1, 2, 1, n});
    EXPECT_THAT(Transport(both, velocity, carried),
                AllClose(moved.expand({1, 2, 1, n}), 1e-13));
  }
}

TEST(TransportTest, MassIsConserved) {
  const at::Tensor velocity = SmoothMomentum({2, 3, 6, 7, 8}, 1, {.power = 0});
  const at::Tensor density = Random({2, 1, 6, 7, 8}) + 1;
  for (const TimeStepping stepping : kBoth) {
    const at::Tensor end =
        Transport(density, velocity, Carried::kDensity, {.stepping = stepping});
    EXPECT_THAT(end.sum({2, 3, 4}), AllClose(density.sum({2, 3, 4}), 1e-14));
    EXPECT_GT((end - density).abs().max().item<double>(), 0.01);
  }
}

TEST(TransportTest, AGeodesicsMomentumIsCarriedByItsVelocity) {
  // To first order in time, Shoot and the momentum's transport are the same.
  const SobolevOperator l = {.alpha = 1};
  const at::Tensor momentum = SmoothMomentum({1, 2, 8, 9}, 1, l);
  const PathOptions one = {.steps = 1, .stepping = TimeStepping::kEuler};
  EXPECT_THAT(
      Transport(momentum, SobolevSmooth(momentum, l), Carried::kMomentum, one),
      AllClose(Shoot(momentum, l, one).momentum, 1e-14));
}

TEST(TransportTest, GradientsAreThoseOfDifferencesHoweverMuchIsKept) {
  for (const Carried carried :
       {Carried::kImage, Carried::kDensity, Carried::kMomentum}) {
    const std::vector<at::Tensor> inputs = {Random({1, 2, 3, 4}),
                                            Random({1, 2, 3, 4}, 2)};
    std::vector<std::vector<at::Tensor>> found;
    for (const PathMemory memory : kMemories) {
      const auto transport = [&](const std::vector<at::Tensor>& in) {
        return Transport(in[0], in[1], carried, {.steps = 3, .memory = memory});
      };
      if (memory == PathMemory::kAll) {
        EXPECT_LE(GradientError(transport, inputs), 1e-7);
      }
      found.push_back(Gradients(transport, inputs));
      EXPECT_THAT(found.back()[0], AllClose(found.front()[0], 1e-13));
      EXPECT_THAT(found.back()[1], AllClose(found.front()[1], 1e-13));
    }
  }
}

TEST(LddmmTest, SixteenBitsComputeInFloat32) {
  const SobolevOperator l = {.alpha = 2};
  const at::Tensor momentum =
      SmoothMomentum({1, 3, 6, 7, 8}, 1, l).to(at::kHalf);
  const Geodesic end = Shoot(momentum, l);
  const Geodesic exact = Shoot(momentum.to(at::kDouble), l);
  EXPECT_EQ(end.momentum.scalar_type(), at::kFloat);
  EXPECT_THAT(end.momentum, AllClose(exact.momentum, 1e-5));
  EXPECT_THAT(end.displacement, AllClose(exact.displacement, 1e-5));
  EXPECT_THAT(
      Transport(momentum, momentum * 0.01, Carried::kImage),
      AllClose(Transport(momentum.to(at::kDouble),
                         (momentum * 0.01).to(at::kDouble), Carried::kImage),
               1e-5));
  EXPECT_EQ(KineticEnergy(momentum, l).scalar_type(), at::kFloat);
}

TEST(LddmmTest, SaysWhatItWanted) {
  const auto says = [](const char* text) {
    return ThrowsMessage<c10::ValueError>(HasSubstr(text));
  };
  const at::Tensor good = at::zeros({1, 2, 4, 4});
  EXPECT_THAT(
      [&] {
        Shoot(at::zeros({1, 3, 4, 4}), {});
      },
      says("wanted initial momentum"));
  EXPECT_THAT([&] { Shoot(good, {}, {.steps = 0}); }, says("at least 1 step"));
  EXPECT_THAT([&] { Shoot(good, {.gamma = 0}); }, says("gamma > 0"));
  EXPECT_THAT([&] { Shoot(good + std::numeric_limits<float>::infinity(), {}); },
              says("Shoot: initial momentum[0, 0, 0, 0] is inf"));
  EXPECT_THAT(
      [&] {
        Shoot(Random({1, 2, 4, 4}) * 1e30, {});
      },
      says("take more"));
  EXPECT_THAT([&] { KineticEnergy({}, {}); }, says("undefined"));
  EXPECT_THAT([&] { Transport({}, good, Carried::kImage); },
              says("wanted a floating quantity"));
  EXPECT_THAT([&] { Transport(good.narrow(2, 0, 3), good, Carried::kImage); },
              says("wanted a floating quantity"));
  EXPECT_THAT(
      [&] { Transport(good.narrow(1, 0, 1), good, Carried::kMomentum); },
      says("wanted a floating quantity"));
  EXPECT_THAT([&] { Transport(good, good, Carried::kImage, {.steps = 0}); },
              says("at least 1 step"));
}

}  // namespace
}  // namespace mir::geometry
