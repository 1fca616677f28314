#include "mir/losses/box_sum.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "mir/testing/gradient_check.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::losses {
namespace {

using mir::testing::AllClose;
using mir::testing::GradientError;

at::Tensor Random(at::IntArrayRef sizes) {
  return at::rand(sizes, at::detail::createCPUGenerator(7),
                  at::TensorOptions(at::kDouble));
}

// Shifts the image to every place of the box and adds up.
at::Tensor ByShifts(const at::Tensor& image,
                    const std::vector<int64_t>& radii) {
  at::Tensor sum = image;
  for (size_t i = 0; i < radii.size(); ++i) {
    const int64_t axis = 2 + i;
    const int64_t size = image.size(axis);
    at::Tensor along = at::zeros_like(image);
    for (int64_t by = -radii[i]; by <= radii[i]; ++by) {
      const int64_t left = size - std::abs(by);
      if (left <= 0) continue;
      along.narrow(axis, std::max<int64_t>(-by, 0), left) +=
          sum.narrow(axis, std::max<int64_t>(by, 0), left);
    }
    sum = along;
  }
  return sum;
}

TEST(BoxSumTest, SumsNeighboursAndZerosOutside) {
  const at::Tensor image = at::ones({1, 1, 3, 4}, at::kDouble);
  const at::Tensor sums = BoxSum(image, {1, 1});
  EXPECT_EQ(sums[0][0][0][0].item<double>(), 4);
  EXPECT_EQ(sums[0][0][1][0].item<double>(), 6);
  EXPECT_EQ(sums[0][0][1][2].item<double>(), 9);
}

TEST(BoxSumTest, EqualsShiftsForEveryWidth) {
  const at::Tensor image = Random({2, 2, 5, 11, 14});
  for (int64_t radius = 0; radius < 13; ++radius) {
    const std::vector<int64_t> radii = {radius / 2, radius, 12 - radius};
    EXPECT_THAT(BoxSum(image, radii), AllClose(ByShifts(image, radii), 1e-14))
        << radius;
  }
}

TEST(BoxSumTest, LeavesNoRoundingOfWhatHasLeft) {
  // A running sum over [1e20, 1, 1, ...] loses the ones.
  at::Tensor image = at::ones({1, 1, 1, 20}, at::kDouble);
  image[0][0][0][0] = 1e20;
  const at::Tensor sums = BoxSum(image, {0, 1});
  EXPECT_EQ(sums[0][0][0][2].item<double>(), 3);
  EXPECT_EQ(sums[0][0][0][18].item<double>(), 3);
}

TEST(BoxSumTest, IsDifferentiableTwice) {
  EXPECT_LT(GradientError(
                [](const auto& in) {
                  return BoxSum(in[0], {1, 2}) * BoxSum(in[1], {0, 1});
                },
                {Random({1, 2, 4, 6}), Random({1, 2, 4, 6})}),
            1e-8);
  const at::Tensor image = Random({1, 1, 4, 5}).requires_grad_();
  const at::Tensor gradient = BoxSum(image.square(), {1, 1}).sum();
  gradient.backward({}, /*retain_graph=*/std::nullopt, /*create_graph=*/true);
  const at::Tensor first = image.grad().clone();
  image.mutable_grad() = at::Tensor();
  first.sum().backward();
  // The second derivative of x^2 is 2, in as many boxes as hold the element.
  EXPECT_THAT(image.grad(),
              AllClose(2 * BoxSum(at::ones({1, 1, 4, 5}), {1, 1}), 1e-14));
}

TEST(BoxSumTest, TheRadiiMustBeThoseOfTheAxes) {
  EXPECT_THROW(BoxSum(Random({1, 1, 4, 4}), {1, 1, 1}), c10::ValueError);
}

}  // namespace
}  // namespace mir::losses
