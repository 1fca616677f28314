#include "mir/geometry/integrate_velocity.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "mir/geometry/compose.h"
#include "mir/geometry/jacobian.h"
#include "mir/geometry/vec_int.h"
#include "mir/testing/gradient_check.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::geometry {
namespace {

using ::mir::testing::AllClose;
using ::mir::testing::GradientError;
using ::mir::testing::TensorEq;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

at::Tensor Rand(at::IntArrayRef sizes, uint64_t seed,
                at::ScalarType dtype = at::kDouble) {
  return at::rand(sizes, at::detail::createCPUGenerator(seed),
                  at::TensorOptions(dtype));
}

double Worst(const at::Tensor& difference) {
  return difference.abs().max().item<double>();
}

// Velocities of about `reach` voxels that end at the faces and turn in time.
std::vector<at::Tensor> Turning(int64_t side, double reach, int intervals) {
  const at::Tensor bump =
      at::arange(side, at::kDouble).mul_(M_PI / (side - 1)).sin().pow_(2);
  const at::Tensor window = bump.view({-1, 1}) * bump;
  std::vector<at::Tensor> velocities;
  for (int i = 0; i < intervals; ++i) {
    const double time = (i + 0.5) / intervals;
    velocities.push_back(reach * at::stack({std::cos(3 * time) * window,
                                            std::sin(3 * time) * window})
                                     .unsqueeze(0));
  }
  return velocities;
}

std::vector<at::Tensor> Backwards(const std::vector<at::Tensor>& velocities) {
  std::vector<at::Tensor> opposite;
  for (auto v = velocities.rbegin(); v != velocities.rend(); ++v) {
    opposite.push_back(-*v);
  }
  return opposite;
}

TEST(IntegrateVelocityTest, OneIntervalIsVecInt) {
  const at::Tensor velocity = 4 * Rand({2, 3, 4, 5, 6}, 1, at::kFloat) - 2;
  for (const int steps : {0, 1, 7}) {
    EXPECT_THAT(IntegrateVelocity({velocity}, steps),
                TensorEq(VecInt(velocity, steps)));
  }
}

TEST(IntegrateVelocityTest, EulerStepsByHand) {
  // Both halves move by half their velocity: first by (1, 0.5, 0), then voxels
  // are at 1, 1.5 and 2, where half the second is 1, 1.5 and 2.
  at::Tensor first = at::zeros({1, 2, 1, 3});
  first[0][1][0][0] = 2;
  first[0][1][0][1] = 1;
  at::Tensor second = at::zeros({1, 2, 1, 3});
  second[0][1][0][1] = 2;
  second[0][1][0][2] = 4;
  at::Tensor expected = at::zeros({1, 2, 1, 3});
  expected[0][1][0][0] = 1 + 1;
  expected[0][1][0][1] = 0.5 + 1.5;
  expected[0][1][0][2] = 2;
  EXPECT_THAT(IntegrateVelocity({first, second}), TensorEq(expected));
}

TEST(IntegrateVelocityTest,
     EulersErrorFallsWithTheStepAndThatOfSquaringIsSmall) {
  // dx/dt = a (x - c) moves x to c + (x - c) exp(a); linear fields are
  // interpolated without error.
  const double a = -0.7;
  const at::Tensor from_centre = at::arange(21, at::kDouble) - 10;
  at::Tensor velocity = at::zeros({1, 2, 3, 21}, at::kDouble);
  velocity.select(1, 1).copy_(a * from_centre);
  const auto integrate = [&](int intervals, int steps) {
    return IntegrateVelocity(std::vector<at::Tensor>(intervals, velocity),
                             steps)
        .select(1, 1)[0][1];
  };
  for (const int intervals : {4, 32}) {
    EXPECT_THAT(
        integrate(intervals, 0),
        AllClose((std::pow(1 + a / intervals, intervals) - 1) * from_centre,
                 1e-13));
  }
  EXPECT_THAT(integrate(3, 20),
              AllClose((std::exp(a) - 1) * from_centre, 1e-6));
}

TEST(IntegrateVelocityTest, TimeGoesForwards) {
  // What holds during a quarter moves a quarter as far.
  const at::Tensor velocity = Turning(24, 4, 1)[0];
  const at::Tensor rest = at::zeros_like(velocity);
  EXPECT_THAT(IntegrateVelocity({velocity, rest, rest, rest}, 7),
              AllClose(VecInt(velocity / 4, 7), 1e-14));
  const std::vector<at::Tensor> turning = Turning(24, 8, 2);
  const at::Tensor expected =
      Compose(VecInt(turning[1] / 2), VecInt(turning[0] / 2));
  EXPECT_THAT(IntegrateVelocity(turning, 7), AllClose(expected, 1e-14));
  EXPECT_GT(Worst(IntegrateVelocity({turning[1], turning[0]}, 7) - expected),
            0.1);
}

TEST(IntegrateVelocityTest, BackwardsInTimeIsTheInverse) {
  const std::vector<at::Tensor> velocities = Turning(64, 8, 6);
  const at::Tensor there = IntegrateVelocity(velocities, 7);
  const at::Tensor back = IntegrateVelocity(Backwards(velocities), 7);
  EXPECT_GT(Worst(there), 4);
  EXPECT_GT(JacobianDeterminant(there).min().item<double>(), 0);
  EXPECT_LT(Worst(Compose(there, back)), 0.05);  // Voxels.
  EXPECT_LT(Worst(Compose(back, there)), 0.05);
}

TEST(IntegrateVelocityTest, GradientIsTheDerivative) {
  for (const int steps : {0, 2}) {
    EXPECT_LT(GradientError(
                  [&](const std::vector<at::Tensor>& in) {
                    return IntegrateVelocity(in, steps,
                                             WarpConvention::kMirCompatible);
                  },
                  {4 * Rand({1, 2, 5, 4}, 1) - 2, 4 * Rand({1, 2, 5, 4}, 2) - 2,
                   4 * Rand({1, 2, 5, 4}, 3) - 2}),
              1e-6);
  }
}

TEST(IntegrateVelocityTest, ReturnsFloat32OrFloat64) {
  const at::Tensor half = Rand({1, 2, 5, 4}, 1).to(at::kBFloat16);
  EXPECT_THAT(
      IntegrateVelocity({half, half}),
      TensorEq(IntegrateVelocity({half.to(at::kFloat), half.to(at::kFloat)})));
  EXPECT_EQ(IntegrateVelocity({half, half.to(at::kDouble)}).scalar_type(),
            at::kDouble);
}

TEST(IntegrateVelocityTest, SaysWhatWasWantedAndWhatCame) {
  const auto refuses = [](const auto& function, const char* message) {
    EXPECT_THAT(function, ThrowsMessage<c10::ValueError>(HasSubstr(message)));
  };
  const at::Tensor field = at::zeros({1, 2, 5, 6});
  at::Tensor nan = field.clone();
  nan[0][1][4][2] = std::numeric_limits<float>::quiet_NaN();
  refuses([] { IntegrateVelocity({}); }, "at least one velocity");
  refuses([&] { IntegrateVelocity({field, field}, 33); }, "0 to 32 steps");
  refuses(
      [&] {
        IntegrateVelocity({field, at::zeros({1, 2, 5, 5})});
      },
      "one shape, came [1, 2, 5, 6] and [1, 2, 5, 5]");
  refuses(
      [&] {
        IntegrateVelocity({field, nan});
      },
      "IntegrateVelocity: velocity[0, 1, 4, 2] is nan");
  refuses(
      [] {
        IntegrateVelocity({at::zeros({1}).expand({1, 3, 2048, 1024, 1024})});
      },
      "fewer than 2^31 voxels");
}

}  // namespace
}  // namespace mir::geometry
