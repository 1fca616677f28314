#include "mir/losses/gradient_penalty.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>

#include "mir/precision/autocast.h"
#include "mir/testing/gradient_check.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::losses {
namespace {

using mir::testing::AllClose;
using mir::testing::GradientError;
using mir::testing::TensorEq;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kFloatEpsilon = 1.2e-7;

at::Tensor Random(at::IntArrayRef sizes, uint64_t seed) {
  return at::rand(sizes, at::detail::createCPUGenerator(seed),
                  at::TensorOptions(at::kDouble));
}

GradientPenaltyOptions Options(GradientNorm norm,
                               std::vector<double> spacing = {}) {
  GradientPenaltyOptions options;
  options.norm = norm;
  options.spacing = std::move(spacing);
  return options;
}

TEST(GradientPenaltyTest, AveragesTheAxesMeans) {
  // u_0 rises by 2 along h in every row, u_1 by 6 along w.
  at::Tensor field = at::zeros({1, 2, 3, 4});
  field[0][0] += 2 * at::arange(3.).view({3, 1});
  field[0][1] += 6 * at::arange(4.);
  // Half of the elements of each axis' mean are zero.
  const GradientPenalty l1(Options(GradientNorm::kL1));
  EXPECT_FLOAT_EQ(l1(field).item<float>(), (2. / 2 + 6. / 2) / 2);
  EXPECT_FLOAT_EQ(l1(-field).item<float>(), 2);
  const GradientPenalty l2(Options(GradientNorm::kL2));
  EXPECT_FLOAT_EQ(l2(field).item<float>(), (4. / 2 + 36. / 2) / 2);
}

TEST(GradientPenaltyTest, TheDefaultIsTheSquare) {
  const at::Tensor field = Random({1, 3, 3, 4, 5}, 1);
  EXPECT_THAT(GradientPenalty()(field),
              TensorEq(GradientPenalty(Options(GradientNorm::kL2))(field)));
}

TEST(GradientPenaltyTest, SpacingTurnsVoxelsIntoMillimetres) {
  // 0.5 voxels of 3 mm per step of 2 mm: 0.75 mm per mm, in one of two
  // channels along one of two axes.
  at::Tensor field = at::zeros({1, 2, 4, 4}, at::kDouble);
  field[0][0] += 0.5 * at::arange(4.);
  const std::vector<double> spacing = {3, 2};
  EXPECT_DOUBLE_EQ(GradientPenalty(Options(GradientNorm::kL1, spacing))(field)
                       .item<double>(),
                   0.75 / 4);
  EXPECT_DOUBLE_EQ(GradientPenalty(Options(GradientNorm::kL2, spacing))(field)
                       .item<double>(),
                   0.75 * 0.75 / 4);
}

TEST(GradientPenaltyTest, TheIsotropicNormIsThatOfTheGradient) {
  at::Tensor field = at::zeros({1, 2, 4, 5}, at::kDouble);
  field[0][0] += 3 * at::arange(4., at::kDouble).view({4, 1}) +
                 4 * at::arange(5., at::kDouble);
  // 5 in one of two channels, the floor's 1e-3 in the other; over two axes.
  const GradientPenalty penalty(Options(GradientNorm::kIsotropic));
  EXPECT_NEAR(penalty(field).item<double>(), (5 + 1e-3) / 4, 1e-6);
  EXPECT_LT(GradientError([&](const auto& in) { return penalty(in[0]); },
                          {Random({1, 3, 3, 1, 4}, 1)}),
            1e-6);
}

TEST(GradientPenaltyTest, EachDifferenceCountsTheWeightOfItsFurtherVoxel) {
  at::Tensor field = at::zeros({1, 2, 1, 3}, at::kDouble);
  field[0][0][0][1] = 1;  // Differences of 1 and -1.
  const at::Tensor weight = at::arange(3., at::kDouble).view({1, 1, 1, 3});
  for (const GradientNorm norm : {GradientNorm::kL1, GradientNorm::kL2}) {
    EXPECT_NEAR(GradientPenalty(Options(norm))(field, weight).item<double>(),
                (1. + 2.) / 4 / 2, 1e-12);
  }
  EXPECT_LT(GradientError(
                [](const auto& in) { return GradientPenalty()(in[0], in[1]); },
                {Random({1, 3, 3, 4, 5}, 1), Random({1, 1, 3, 4, 5}, 2)}),
            1e-7);
  EXPECT_THROW(GradientPenalty()(field, weight - 1), c10::ValueError);
  EXPECT_THROW(GradientPenalty()(field / 0, weight), c10::ValueError);
}

struct Case {
  const char* name;
  std::vector<int64_t> sizes;
  GradientPenaltyOptions options;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class GradientPenaltyCaseTest : public ::testing::TestWithParam<Case> {};

TEST_P(GradientPenaltyCaseTest, GradientsEqualDifferences) {
  const GradientPenalty penalty(GetParam().options);
  EXPECT_LT(GradientError([&](const auto& in) { return penalty(in[0]); },
                          {Random(GetParam().sizes, 1)}),
            1e-7);
}

TEST_P(GradientPenaltyCaseTest, TheKernelEqualsTheOperators) {
  const Case& one = GetParam();
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const at::Tensor field = Random(one.sizes, 1).to(dtype);
    const at::Tensor own = field.clone().requires_grad_();
    const at::Tensor theirs = field.clone().requires_grad_();
    const at::Tensor value = GradientPenalty(one.options)(own);
    const at::Tensor expected = GradientPenaltyByOperators(theirs, one.options);
    (value * 3).backward();
    (expected * 3).backward();
    const double epsilon = dtype == at::kFloat ? kFloatEpsilon : 2.3e-16;
    EXPECT_EQ(value.scalar_type(), dtype);
    EXPECT_THAT(value, AllClose(expected, 8 * epsilon));
    EXPECT_THAT(own.grad(), AllClose(theirs.grad(), 8 * epsilon));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, GradientPenaltyCaseTest,
    ::testing::ValuesIn(std::vector<Case>{
        {"L1", {2, 3, 4, 5, 11}, Options(GradientNorm::kL1)},
        {"L2", {2, 3, 4, 5, 11}, Options(GradientNorm::kL2)},
        {"L1Spacing", {1, 3, 5, 3, 4}, Options(GradientNorm::kL1, {1, 2, 3})},
        {"L2Spacing", {1, 3, 5, 3, 4}, Options(GradientNorm::kL2, {1, 2, 3})},
        {"L1In2D", {2, 2, 6, 9}, Options(GradientNorm::kL1)},
        {"L2In2D", {2, 2, 6, 9}, Options(GradientNorm::kL2, {0.5, 2})},
        {"OneSlice", {1, 3, 1, 5, 6}, Options(GradientNorm::kL2)},
        {"OneColumn", {1, 3, 5, 6, 1}, Options(GradientNorm::kL1)},
        {"Tiny", {1, 3, 2, 2, 2}, Options(GradientNorm::kL2)},
    }),
    [](const auto& info) { return std::string(info.param.name); });

TEST(GradientPenaltyTest, EqualNeighboursHaveNoL1Gradient) {
  at::Tensor field = at::ones({1, 3, 4, 4, 4}).requires_grad_();
  const at::Tensor value = GradientPenalty(Options(GradientNorm::kL1))(field);
  value.backward();
  EXPECT_EQ(value.item<double>(), 0);
  EXPECT_THAT(field.grad(), TensorEq(at::zeros({1, 3, 4, 4, 4})));
}

TEST(GradientPenaltyTest, OneVoxelIsSmooth) {
  EXPECT_EQ(GradientPenalty()(at::ones({1, 3, 1, 1, 1})).item<double>(), 0);
  EXPECT_EQ(
      GradientPenaltyByOperators(at::ones({1, 3, 1, 1, 1}), {}).item<double>(),
      0);
}

TEST(GradientPenaltyTest, ComputesWideForEveryTypeAndUnderAutocast) {
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    const at::Tensor field =
        (20 * Random({1, 3, 8, 8, 8}, 1)).to(dtype).requires_grad_();
    const precision::Autocast autocast(at::kCPU,
                                       precision::Precision::kBFloat16);
    const at::Tensor value = GradientPenalty()(field);
    EXPECT_EQ(value.scalar_type(), at::kFloat);
    EXPECT_THAT(value, AllClose(GradientPenalty()(field.to(at::kDouble)),
                                4 * kFloatEpsilon));
    value.backward();
    EXPECT_EQ(field.grad().scalar_type(), dtype);
  }
}

TEST(GradientPenaltyTest, EveryNumberOfThreadsGivesTheSameBits) {
  const at::Tensor field = Random({1, 3, 17, 9, 11}, 1).to(at::kFloat);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor alone = GradientPenalty()(field);
  at::set_num_threads(3);
  EXPECT_THAT(GradientPenalty()(field), TensorEq(alone));
  at::set_num_threads(before);
}

TEST(GradientPenaltyTest, StridedFieldsAreRead) {
  const at::Tensor field = Random({1, 3, 4, 5, 6}, 1);
  const at::Tensor strided =
      field.transpose(1, 4).contiguous().transpose(1, 4).requires_grad_();
  const at::Tensor dense = field.clone().requires_grad_();
  GradientPenalty()(strided).backward();
  GradientPenalty()(dense).backward();
  EXPECT_THAT(strided.grad(), TensorEq(dense.grad()));
}

std::string ErrorOf(const at::Tensor& field,
                    const GradientPenaltyOptions& options = {}) {
  try {
    GradientPenalty{options}(field);
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "no c10::ValueError";
}

TEST(GradientPenaltyTest, WrongFieldsAreRefused) {
  EXPECT_THAT(ErrorOf(Random({1, 2, 4, 4, 4}, 1)),
              AllOf(HasSubstr("wanted a displacement [N, 3, D, H, W]"),
                    HasSubstr("got [1, 2, 4, 4, 4]")));
  EXPECT_THAT(ErrorOf(Random({3, 4, 4, 4}, 1)), HasSubstr("got [3, 4, 4, 4]"));
  EXPECT_THAT(ErrorOf(Random({0, 3, 4, 4, 4}, 1)), HasSubstr("not empty"));
  EXPECT_THAT(ErrorOf(at::Tensor()), HasSubstr("undefined"));
  EXPECT_THROW(GradientPenalty()(at::ones({1, 2, 4, 4}, at::kInt)),
               c10::TypeError);
  EXPECT_THAT(
      ErrorOf(Random({1, 2, 4, 4}, 1), Options(GradientNorm::kL2, {1, 1, 1})),
      HasSubstr("each of 2 axes, got 3"));
}

TEST(GradientPenaltyTest, WrongSpacingsAreRefused) {
  for (const double size :
       {0.0, -1.0, std::numeric_limits<double>::infinity()}) {
    EXPECT_THROW(GradientPenalty(Options(GradientNorm::kL2, {1, size, 1})),
                 c10::ValueError)
        << size;
  }
}

TEST(GradientPenaltyTest, ANonFiniteValueIsNamed) {
  at::Tensor field = Random({1, 3, 4, 5, 6}, 1);
  field[0][2][3][4][5] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(ErrorOf(field), AllOf(HasSubstr("displacement = nan"),
                                    HasSubstr("[0, 2, 3, 4, 5]")));
  GradientPenaltyOptions options;
  EXPECT_NO_THROW(GradientPenaltyByOperators(field, options));
  options.check_finite = true;
  EXPECT_THROW(GradientPenaltyByOperators(field, options), c10::ValueError);
}

TEST(GradientPenaltyTest, ASecondDerivativeIsRefusedRatherThanWrong) {
  const at::Tensor field = Random({1, 3, 3, 3, 3}, 1).requires_grad_();
  EXPECT_THROW(GradientPenalty()(field).backward(
                   {}, /*retain_graph=*/std::nullopt, /*create_graph=*/true),
               c10::Error);
}

}  // namespace
}  // namespace mir::losses
