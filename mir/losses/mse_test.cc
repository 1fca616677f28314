#include "mir/losses/mse.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "mir/precision/autocast.h"
#include "mir/testing/gradient_check.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::losses {
namespace {

using mir::testing::GradientError;
using mir::testing::TensorEq;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kFloatEpsilon = 1.2e-7;

at::Tensor Random(at::IntArrayRef sizes, uint64_t seed) {
  return at::rand(sizes, at::detail::createCPUGenerator(seed),
                  at::TensorOptions(at::kDouble));
}

TEST(MseTest, IsTheMeanOfSquares) {
  at::Tensor moving = at::full({1, 1, 2, 2}, 0.5);
  moving[0][0][1][1] = 2.5;
  // (3 * 0.25 + 6.25) / 4
  EXPECT_EQ(Mse()(at::full({1, 1, 2, 2}, 0.0), moving).item<double>(), 1.75);
}

TEST(MseTest, GradientsEqualDifferences) {
  EXPECT_LT(
      GradientError([](const auto& in) { return Mse()(in[0], in[1]); },
                    {Random({2, 1, 3, 4, 5}, 1), Random({2, 1, 3, 4, 5}, 2)}),
      1e-7);
}

TEST(MseTest, ComputesWideForEveryTypeAndUnderAutocast) {
  const at::Tensor fixed = Random({1, 1, 16, 16, 16}, 1) * 255;
  const at::Tensor moving = Random({1, 1, 16, 16, 16}, 2) * 255;
  for (const at::ScalarType dtype :
       {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor f = fixed.to(dtype);
    const at::Tensor m = moving.clone().to(dtype).requires_grad_();
    const precision::Autocast autocast(at::kCPU,
                                       precision::Precision::kBFloat16);
    const at::Tensor value = Mse()(f, m);
    EXPECT_EQ(value.scalar_type(),
              dtype == at::kDouble ? at::kDouble : at::kFloat);
    const double expected =
        (f.to(at::kDouble) - m.to(at::kDouble)).square().mean().item<double>();
    EXPECT_NEAR(value.item<double>(), expected, 4 * kFloatEpsilon * expected)
        << dtype;
    value.backward();
    EXPECT_EQ(m.grad().scalar_type(), dtype);
  }
  // Mixed types.
  EXPECT_EQ(Mse()(fixed.to(at::kHalf), moving).scalar_type(), at::kDouble);
}

TEST(MseTest, AScaledLossKeepsTheDigitsOfFloat16Gradients) {
  // Of this size float16 rounds 1 / n by 18 %; times 65536 it does not.
  const std::vector<int64_t> sizes = {1, 1, 160, 192, 224};
  const at::Tensor moving = at::full(sizes, 0.5, at::kHalf).requires_grad_();
  (Mse()(at::full(sizes, 0., at::kHalf), moving) * 65536).backward();
  const double expected = 65536.0 / (160 * 192 * 224);
  for (const at::Tensor& end : {moving.grad().min(), moving.grad().max()}) {
    EXPECT_NEAR(end.item<double>(), expected, 4.9e-4 * expected);
  }
}

TEST(MseTest, ANonFiniteVoxelIsNamed) {
  const at::Tensor good = Random({1, 1, 3, 4}, 1);
  at::Tensor bad = good.clone();
  bad[0][0][2][1] = std::numeric_limits<double>::infinity();
  try {
    Mse()(good, bad);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const c10::ValueError& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                AllOf(HasSubstr("Mse: "), HasSubstr("moving = inf"),
                      HasSubstr("[0, 0, 2, 1]")));
  }
  EXPECT_THROW(Mse()(bad, good), c10::ValueError);
}

TEST(MseTest, AnOverflowOfFiniteImagesIsInfinite) {
  const at::Tensor large = at::full({1, 1, 2, 2}, 1e30);
  EXPECT_TRUE(std::isinf(Mse()(large, -large).item<double>()));
}

TEST(MseTest, AWeightMapWeightsTheMean) {
  at::Tensor moving = at::full({1, 1, 2, 2}, 0.5);
  moving[0][0][1][1] = 2.5;
  at::Tensor weight = at::full({1, 1, 2, 2}, 1.0);
  weight[0][0][1][1] = 5;
  const at::Tensor fixed = at::full({1, 1, 2, 2}, 0.0);
  EXPECT_EQ(Mse()(fixed, moving, weight).item<double>(),
            (3 * 0.25 + 5 * 6.25) / 8);
  // Where it is 0, a voxel may be anything.
  weight[0][0][1][1] = 0;
  moving[0][0][1][1] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Mse()(fixed, moving, weight).item<double>(), 0.25);
  EXPECT_EQ(Mse()(fixed, moving, weight * 0).item<double>(), 0);
  EXPECT_THROW(Mse()(fixed, fixed, -weight), c10::ValueError);
}

TEST(MseTest, WrongImagesAreRefused) {
  EXPECT_THROW(Mse()(Random({1, 1, 4, 4}, 1), Random({1, 1, 4, 5}, 1)),
               c10::ValueError);
  EXPECT_THROW(Mse()(at::full({1, 1, 2, 2}, 1, at::kInt),
                     at::full({1, 1, 2, 2}, 1, at::kInt)),
               c10::TypeError);
}

}  // namespace
}  // namespace mir::losses
