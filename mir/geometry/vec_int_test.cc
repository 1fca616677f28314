#include "mir/geometry/vec_int.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "mir/geometry/compose.h"
#include "mir/geometry/jacobian.h"
#include "mir/precision/autocast.h"
#include "mir/precision/precision.h"
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
                at::ScalarType dtype = at::kFloat) {
  return at::rand(sizes, at::detail::createCPUGenerator(seed),
                  at::TensorOptions(dtype));
}

TEST(VecIntTest, NoStepsReturnTheVelocity) {
  const at::Tensor velocity = Rand({1, 2, 5, 6}, 1);
  EXPECT_THAT(VecInt(velocity, 0), TensorEq(velocity));
}

TEST(VecIntTest, ZeroStaysZero) {
  const at::Tensor velocity = at::zeros({2, 3, 4, 5, 6});
  EXPECT_THAT(VecInt(velocity), TensorEq(velocity));
}

TEST(VecIntTest, OneStepByHand) {
  // Half of it is (1, 0.5, 0.5), which is read at 1, 1.5 and 2.5, the last
  // half outside.
  at::Tensor velocity = at::zeros({1, 2, 1, 3});
  velocity[0][1][0][0] = 2;
  velocity[0][1][0][1] = 1;
  velocity[0][1][0][2] = 1;
  at::Tensor expected = at::zeros({1, 2, 1, 3});
  expected[0][1][0][0] = 1 + 0.5;
  expected[0][1][0][1] = 0.5 + 0.5;
  expected[0][1][0][2] = 0.5 + 0.25;
  EXPECT_THAT(VecInt(velocity, 1), TensorEq(expected));
}

TEST(VecIntTest, LinearVelocityGrowsExponentially) {
  // dx/dt = a (x - c) moves x to c + (x - c) exp(a), within the volume: with
  // a < 0 nothing leaves it. Linear fields are interpolated without error.
  const double a = -0.7, c = 10;
  const at::Tensor from_centre = at::arange(21, at::kDouble) - c;
  at::Tensor velocity = at::zeros({1, 2, 3, 21}, at::kDouble);
  velocity.select(1, 1).copy_(a * from_centre);
  const at::Tensor displacement = VecInt(velocity, 16);
  // Scaling and squaring takes (1 + a / 2^16)^(2^16) for exp(a).
  const double factor = std::exp(65536 * std::log1p(a / 65536));
  EXPECT_NEAR(factor, std::exp(a), 1e-5);
  EXPECT_THAT(displacement.select(1, 1)[0][1],
              AllClose((factor - 1) * from_centre, 1e-12));
  EXPECT_THAT(displacement.select(1, 0), TensorEq(velocity.select(1, 0)));
}

TEST(VecIntTest, MirCompatibleReadsWhereMirDoes) {
  // Half of it is (1, 2, 4); of 3 voxels, v displaced by u is read at
  // (v + u) * 3 / 2 - 0.5: at 1, 4 and 8.5.
  at::Tensor velocity = at::zeros({1, 2, 1, 3});
  at::Tensor expected = at::zeros({1, 2, 1, 3});
  for (int64_t v = 0; v < 3; ++v) velocity[0][1][0][v] = 2 << v;
  expected[0][1][0][0] = 1 + 2;
  expected[0][1][0][1] = 2;
  expected[0][1][0][2] = 4;
  EXPECT_THAT(VecInt(velocity, 1, WarpConvention::kMirCompatible),
              AllClose(expected, 4 * 1.2e-7));
}

TEST(VecIntTest, SixteenBitVelocitiesAreIntegratedInFloat32) {
  const at::Tensor velocity =
      (4 * Rand({1, 3, 6, 7, 8}, 1) - 2).to(at::kBFloat16);
  const at::Tensor expected = VecInt(velocity.to(at::kFloat));
  const precision::Autocast autocast(at::kCPU, precision::Precision::kBFloat16);
  EXPECT_THAT(VecInt(velocity), TensorEq(expected));
}

// A smooth velocity of about `reach` voxels that ends at the faces.
at::Tensor SmoothVelocity(int64_t side, double reach) {
  const at::Tensor along = at::arange(side, at::kFloat).mul_(M_PI / (side - 1));
  const at::Tensor bump = along.sin().pow_(2);
  const at::Tensor window = bump.view({-1, 1, 1}) * bump.view({-1, 1}) * bump;
  const at::Tensor turn = (2 * along).cos();
  return reach * at::stack({window * turn, -window * turn.view({-1, 1}),
                            window * turn.view({-1, 1, 1})})
                     .unsqueeze(0);
}

TEST(VecIntTest, SmoothVelocitiesGivePositiveJacobians) {
  for (const double reach : {-12, 4, 12}) {
    const at::Tensor displacement = VecInt(SmoothVelocity(64, reach));
    EXPECT_GT(displacement.abs().max().item<double>(), 0.8 * std::abs(reach));
    EXPECT_GT(JacobianDeterminant(displacement).min().item<double>(), 0.25);
  }
}

TEST(VecIntTest, NegativeVelocityGivesTheInverse) {
  // Up to the error of linear interpolation, which grows with the fields'
  // curvature.
  for (const auto& [side, reach, voxels] :
       {std::tuple(32, 2.0, 0.05), std::tuple(64, 8.0, 0.1)}) {
    const at::Tensor velocity = SmoothVelocity(side, reach);
    const at::Tensor there = VecInt(velocity), back = VecInt(-velocity);
    EXPECT_LT(Compose(there, back).abs().max().item<double>(), voxels);
    EXPECT_LT(Compose(back, there).abs().max().item<double>(), voxels);
  }
}

TEST(VecIntTest, GradientIsTheDerivative) {
  for (const WarpConvention convention :
       {WarpConvention::kExact, WarpConvention::kMirCompatible}) {
    for (const VecIntMemory memory :
         {VecIntMemory::kKeepFields, VecIntMemory::kRecompute}) {
      const auto integrate = [&](const std::vector<at::Tensor>& in) {
        return VecInt(in[0], 3, convention, memory);
      };
      EXPECT_LT(GradientError(integrate,
                              {4 * Rand({1, 3, 3, 4, 5}, 2, at::kDouble) - 2}),
                1e-6);
      EXPECT_LT(GradientError(integrate,
                              {4 * Rand({2, 2, 9, 5}, 3, at::kDouble) - 2}),
                1e-6);
    }
  }
}

TEST(VecIntTest, NeitherThreadsNorMemoryChangeABit) {
  const int threads = at::get_num_threads();
  // Slabs of the volume are worked on in parallel, or all of it is reached.
  for (const double reach : {2., 60.}) {
    const at::Tensor field = reach * (Rand({2, 3, 40, 9, 10}, 1) - 0.5);
    std::vector<at::Tensor> displacements, gradients;
    for (const int number : {1, 3}) {
      at::set_num_threads(number);
      for (const VecIntMemory memory :
           {VecIntMemory::kKeepFields, VecIntMemory::kRecompute}) {
        const at::Tensor velocity = field.clone().requires_grad_();
        displacements.push_back(
            VecInt(velocity, 7, WarpConvention::kExact, memory));
        (displacements.back() * Rand(field.sizes(), 2)).sum().backward();
        gradients.push_back(velocity.grad());
      }
    }
    displacements.push_back(VecInt(field));
    for (const at::Tensor& other : displacements) {
      EXPECT_THAT(other, TensorEq(displacements[0]));
    }
    for (const at::Tensor& other : gradients) {
      EXPECT_THAT(other, TensorEq(gradients[0]));
    }
  }
  at::set_num_threads(threads);
}

TEST(VecIntTest, StridesOfTheGradientDoNotMatter) {
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{2, 3, 4, 5, 6}, {2, 2, 5, 6}}) {
    const auto gradient = [&](const at::Tensor& cotangent) {
      const at::Tensor velocity = (4 * Rand(sizes, 1) - 2).requires_grad_();
      VecInt(velocity, 3).backward(cotangent);
      return velocity.grad();
    };
    const at::Tensor cotangent = Rand(sizes, 2);
    EXPECT_THAT(
        gradient(cotangent.transpose(1, -1).contiguous().transpose(1, -1)),
        TensorEq(gradient(cotangent)));
    const at::Tensor number = Rand({1}, 3);
    EXPECT_THAT(gradient(number.expand(sizes)),
                TensorEq(gradient(number.expand(sizes).contiguous())));
  }
}

TEST(VecIntTest, IsRepeatedComposition) {
  const at::Tensor velocity =
      (8 * Rand({2, 3, 6, 7, 1}, 1, at::kDouble) - 4).requires_grad_();
  at::Tensor expected = velocity / 8;
  for (int step = 0; step < 3; ++step) expected = Compose(expected, expected);
  const at::Tensor displacement = VecInt(velocity, 3);
  EXPECT_THAT(displacement, AllClose(expected, 1e-14));
  const at::Tensor cotangent = Rand(velocity.sizes(), 2, at::kDouble);
  expected.backward(cotangent);
  const at::Tensor wanted = velocity.grad().clone();
  velocity.mutable_grad().reset();
  displacement.backward(cotangent);
  EXPECT_THAT(velocity.grad(), AllClose(wanted, 1e-13));
}

TEST(VecIntTest, RefusesASecondDerivative) {
  const at::Tensor velocity = Rand({1, 2, 5, 6}, 1).requires_grad_();
  EXPECT_THAT(
      [&] {
        VecInt(velocity).sum().backward({}, /*retain_graph=*/true,
                                        /*create_graph=*/true);
      },
      ThrowsMessage<c10::NotImplementedError>(
          HasSubstr("no second derivative")));
}

TEST(VecIntTest, EmptyBatchIsEmpty) {
  EXPECT_EQ(VecInt(at::zeros({0, 2, 5, 6})).sizes(),
            at::IntArrayRef({0, 2, 5, 6}));
}

TEST(VecIntTest, SaysWhatWasWantedAndWhatCame) {
  const at::Tensor velocity = at::zeros({1, 2, 5, 6});
  EXPECT_THAT([&] { VecInt(velocity, -1); },
              ThrowsMessage<c10::ValueError>(
                  HasSubstr("wanted 0 to 32 steps, came -1")));
  EXPECT_THAT([&] { VecInt(velocity, 33); },
              ThrowsMessage<c10::ValueError>(HasSubstr("came 33")));
  EXPECT_THAT(
      [&] {
        VecInt(at::zeros({1, 1, 5, 6}));
      },
      ThrowsMessage<c10::ValueError>(HasSubstr(
          "VecInt: wanted velocity [N, 3, D, H, W] or [N, 2, H, W]")));
  EXPECT_THAT(
      [&] { VecInt(velocity + std::numeric_limits<float>::quiet_NaN()); },
      ThrowsMessage<c10::ValueError>(
          HasSubstr("VecInt: velocity[0, 0, 0, 0] is nan")));
  EXPECT_THAT(
      [&] {
        VecInt(at::zeros({1}).expand({1, 3, 2048, 1024, 1024}));
      },
      ThrowsMessage<c10::ValueError>(HasSubstr("fewer than 2^31 voxels")));
}

}  // namespace
}  // namespace mir::geometry
