#include "mir/losses/dice.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <vector>

#include "mir/testing/gradient_check.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::losses {
namespace {

using mir::testing::GradientError;
using mir::testing::TensorEq;

constexpr double kEpsilon = 1e-5;  // The default's.

// One-hot [1, 3, 1, n] of the labels.
at::Tensor OneHot(const std::vector<int64_t>& labels) {
  const at::Tensor row = at::tensor(labels, at::kLong).view({1, 1, -1});
  return at::stack({row == 0, row == 1, row == 2}, 1).to(at::kDouble);
}

TEST(DiceTest, IsTheMeanOverClasses) {
  // By hand: class 0 agrees, 1 shares one of 1 and 2 voxels, 2 one of 2 and 1.
  const at::Tensor prediction = OneHot({0, 0, 1, 2, 2});
  const at::Tensor target = OneHot({0, 0, 1, 1, 2});
  EXPECT_NEAR(Dice()(prediction, target).item<double>(),
              1 - (1 + 2. / 3 + 2. / 3) / 3, kEpsilon);
  DiceOptions options;
  options.include_background = false;
  EXPECT_NEAR(Dice(options)(prediction, target).item<double>(), 1 - 2. / 3,
              kEpsilon);
}

TEST(DiceTest, AClassThatNeitherHoldsIsLeftOut) {
  const at::Tensor labels = OneHot({0, 0, 1, 1});
  EXPECT_NEAR(Dice()(labels, labels).item<double>(), 0, kEpsilon);
  DiceOptions as_mir;
  as_mir.skip_absent = false;
  EXPECT_NEAR(Dice(as_mir)(labels, labels).item<double>(), 1. / 3, kEpsilon);
}

TEST(DiceTest, AClassThatOnlyThePredictionHoldsCountsAsADiceOfZero) {
  const at::Tensor prediction = OneHot({0, 0, 1, 1});
  const at::Tensor target = OneHot({0, 0, 0, 0});
  DiceOptions options;
  options.include_background = false;
  EXPECT_EQ(Dice(options)(prediction, target).item<double>(), 1);
}

TEST(DiceTest, WhereNoClassCountsTheLossIsZero) {
  const at::Tensor empty = at::zeros({1, 3, 4, 4}).requires_grad_();
  const at::Tensor value = Dice()(empty, at::zeros({1, 3, 4, 4}));
  value.backward();
  EXPECT_EQ(value.item<double>(), 0);
  EXPECT_TRUE(empty.grad().isfinite().all().item<bool>());
}

TEST(DiceTest, LabelsEqualTheirOneHotMaps) {
  const at::Tensor labels =
      at::randint(0, 3, {2, 4, 5, 6}, at::detail::createCPUGenerator(1),
                  at::TensorOptions(at::kLong));
  const at::Tensor maps =
      at::stack({labels == 0, labels == 1, labels == 2}, 1).to(at::kDouble);
  const at::Tensor prediction =
      at::rand({2, 3, 4, 5, 6}, at::detail::createCPUGenerator(2),
               at::TensorOptions(at::kDouble));
  EXPECT_NEAR(Dice()(prediction, labels).item<double>(),
              Dice()(prediction, maps).item<double>(), 1e-14);
  EXPECT_THAT(Dice()(prediction, labels.unsqueeze(1)),
              TensorEq(Dice()(prediction, labels)));
  for (const at::Tensor& target : {labels, maps}) {
    EXPECT_LT(
        GradientError([&](const auto& in) { return Dice()(in[0], target); },
                      {prediction}),
        1e-6);
  }
}

TEST(DiceTest, WrongLabelsAreRefused) {
  const at::Tensor prediction = at::rand({1, 3, 4, 4});
  const at::Tensor labels = at::zeros({1, 1, 4, 4}, at::kInt);
  EXPECT_THROW(Dice()(prediction, labels + 3), c10::ValueError);
  EXPECT_THROW(Dice()(prediction, labels - 1), c10::ValueError);
  EXPECT_THROW(Dice()(prediction, at::zeros({1, 1, 4, 5}, at::kInt)),
               c10::ValueError);
  EXPECT_THROW(Dice()(labels, labels), c10::TypeError);
}

}  // namespace
}  // namespace mir::losses
