#include "mir/geometry/warp_grid_sample.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "mir/geometry/warp.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::geometry {
namespace {

using ::mir::testing::AllClose;
using ::mir::testing::TensorEq;

constexpr double kEpsilon = 2.3e-16;

at::Tensor Rand(at::IntArrayRef sizes, uint64_t seed) {
  return at::rand(sizes, at::detail::createCPUGenerator(seed),
                  at::TensorOptions(at::kDouble));
}

using Case = std::tuple<int, WarpConvention, Interpolation, Outside>;

// The kernels and LibTorch's sampler are independent: they must agree, in
// everything but rounding.
class GridSampleTest : public ::testing::TestWithParam<Case> {};

TEST_P(GridSampleTest, AgreesWithTheKernels) {
  const auto [dims, convention, interpolation, outside] = GetParam();
  const WarpOptions options = {convention, interpolation, outside,
                               /*constant=*/0.75};
  const std::vector<int64_t> image_sizes =
      dims == 3 ? std::vector<int64_t>{2, 3, 4, 1, 6}
                : std::vector<int64_t>{2, 3, 9, 7};
  std::vector<int64_t> displacement_sizes = image_sizes;
  displacement_sizes[1] = dims;
  const at::Tensor cotangent = Rand(image_sizes, 1);
  // Far enough to be mirrored more than once.
  const at::Tensor displacement = 40 * (Rand(displacement_sizes, 2) - 0.5);
  const at::Tensor image = Rand(image_sizes, 3);

  const at::Tensor image_1 = image.clone().requires_grad_();
  const at::Tensor displacement_1 = displacement.clone().requires_grad_();
  const at::Tensor ours = Warp(image_1, displacement_1, options);
  (ours * cotangent).sum().backward();
  const at::Tensor image_2 = image.clone().requires_grad_();
  const at::Tensor displacement_2 = displacement.clone().requires_grad_();
  const at::Tensor theirs = GridSampleWarp(image_2, displacement_2, options);
  (theirs * cotangent).sum().backward();

  EXPECT_THAT(ours, AllClose(theirs, 1000 * kEpsilon));
  EXPECT_THAT(image_1.grad(), AllClose(image_2.grad(), 1000 * kEpsilon));
  EXPECT_THAT(displacement_1.grad(),
              AllClose(displacement_2.grad(), 1000 * kEpsilon));
}

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  const auto [dims, convention, interpolation, outside] = info.param;
  return std::to_string(dims) + "D" +
         (convention == WarpConvention::kExact ? "Exact" : "Mir") +
         (interpolation == Interpolation::kLinear ? "Linear" : "Nearest") +
         (outside == Outside::kZero          ? "Zero"
          : outside == Outside::kNearestEdge ? "Edge"
          : outside == Outside::kReflect     ? "Reflect"
                                             : "Constant");
}

INSTANTIATE_TEST_SUITE_P(
    All, GridSampleTest,
    ::testing::Combine(
        ::testing::Values(2, 3),
        ::testing::Values(WarpConvention::kExact,
                          WarpConvention::kMirCompatible),
        ::testing::Values(Interpolation::kLinear, Interpolation::kNearest),
        ::testing::Values(Outside::kZero, Outside::kNearestEdge,
                          Outside::kReflect, Outside::kConstant)),
    CaseName);

TEST(GatherWarpLabelsTest, AgreesWithTheKernels) {
  for (const WarpConvention convention :
       {WarpConvention::kExact, WarpConvention::kMirCompatible}) {
    const at::Tensor displacement = 8 * (Rand({2, 3, 4, 1, 6}, 2) - 0.5);
    const at::Tensor labels = at::randint(
        1, 100, {2, 2, 4, 1, 6}, at::detail::createCPUGenerator(4), at::kShort);
    EXPECT_THAT(GatherWarpLabels(labels, displacement, convention),
                TensorEq(WarpLabels(labels, displacement, convention)));
  }
}

TEST(GridSampleWarpLabelsLinearTest, AgreesWithTheKernels) {
  for (const WarpConvention convention :
       {WarpConvention::kExact, WarpConvention::kMirCompatible}) {
    const at::Tensor displacement = 8 * (Rand({2, 3, 4, 1, 6}, 2) - 0.5);
    const at::Tensor labels = at::randint(
        1, 4, {2, 2, 4, 1, 6}, at::detail::createCPUGenerator(4), at::kShort);
    EXPECT_THAT(GridSampleWarpLabelsLinear(labels, displacement, convention),
                TensorEq(WarpLabelsLinear(labels, displacement, convention)));
  }
}

}  // namespace
}  // namespace mir::geometry
