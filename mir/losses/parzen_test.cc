#include "mir/losses/parzen.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "mir/testing/tensor_matchers.h"

namespace mir::losses {
namespace {

using mir::testing::AllClose;
using mir::testing::TensorEq;

at::Tensor Random(at::IntArrayRef sizes, uint64_t seed) {
  return at::rand(sizes, at::detail::createCPUGenerator(seed),
                  at::TensorOptions(at::kDouble));
}

struct Case {
  std::string name;
  ParzenWindow x, y;
};

std::vector<Case> Cases() {
  return {
      {"Gaussian", GaussianWindow(32, 0, 1, 1, true, 0),
       GaussianWindow(20, -0.5, 1.5, 1, true, 0.1)},
      {"NarrowGaussian", GaussianWindow(8, 0, 1, 0.5, true, 0),
       GaussianWindow(8, 0, 1, 2, true, 0)},
      {"Spline", CubicSplineWindow(16, 0, 1), CubicSplineWindow(9, 0.1, 0.9)},
      {"Mattes", CubicSplineWindow(32, 0, 1), HatWindow(32, 0, 1)},
      {"Values", GaussianWindow(32, 0, 1, 0.7, false, 0), ValueWindow(0.25)},
  };
}

// Any function of the histograms, not symmetric.
at::Tensor Score(const Histogram& histogram, const at::Tensor& total) {
  const at::Tensor joint = histogram.joint / total.view({-1, 1, 1});
  return (joint.square() * 3).sum() + (joint.select(1, 1) * 2).sum() +
         (histogram.x / total.unsqueeze(1)).square().sum() * 0.3 +
         (histogram.y / total.unsqueeze(1)).square().sum() * 0.7;
}

std::vector<at::Tensor> ByKernel(const Case& one, const at::Tensor& x,
                                 const at::Tensor& y,
                                 const at::Tensor& weight) {
  const at::Tensor own_x = x.clone().requires_grad_();
  const at::Tensor own_y = y.clone().requires_grad_();
  const at::Tensor value =
      ParzenLoss("Test", own_x, own_y, weight, one.x, one.y, Score);
  (value * 2).backward();
  return {value.detach(), own_x.grad(), own_y.grad()};
}

TEST(ParzenTest, TheKernelEqualsTheOperators) {
  const at::Tensor x = Random({2, 1, 3, 7, 41}, 1) * 1.4 - 0.2;
  const at::Tensor y = Random({2, 1, 3, 7, 41}, 2) * 1.4 - 0.2;
  for (const Case& one : Cases()) {
    for (const at::Tensor& weight :
         {at::Tensor(), Random({1, 1, 3, 7, 41}, 3)}) {
      const auto kernel = ByKernel(one, x, y, weight);
      const at::Tensor own_x = x.clone().requires_grad_();
      const at::Tensor own_y = y.clone().requires_grad_();
      const at::Tensor full = weight.defined()
                                  ? weight.expand_as(x)
                                  : at::full({2, 1, 3, 7, 41}, 1., at::kDouble);
      const at::Tensor value =
          Score(HistogramByOperators(own_x, own_y, full, one.x, one.y),
                full.flatten(1).sum(1));
      (value * 2).backward();
      EXPECT_THAT(kernel[0], AllClose(value.detach(), 1e-12)) << one.name;
      EXPECT_THAT(kernel[1], AllClose(own_x.grad(), 1e-10)) << one.name;
      EXPECT_THAT(kernel[2], AllClose(own_y.grad(), 1e-10)) << one.name;
    }
  }
}

TEST(ParzenTest, Float32DiffersByItsRoundingOnly) {
  // Over a part of the kernel, so that parts are added up.
  const at::Tensor x = Random({1, 1, 40, 40, 41}, 1).to(at::kFloat);
  const at::Tensor y = Random({1, 1, 40, 40, 41}, 2).to(at::kFloat);
  for (const Case& one : Cases()) {
    const auto narrow = ByKernel(one, x, y, at::Tensor());
    const auto wide =
        ByKernel(one, x.to(at::kDouble), y.to(at::kDouble), at::Tensor());
    EXPECT_EQ(narrow[0].scalar_type(), at::kFloat);
    EXPECT_THAT(narrow[0], AllClose(wide[0], 2 * 6e-8)) << one.name;
    EXPECT_THAT(narrow[1], AllClose(wide[1], 16 * 6e-8)) << one.name;
    EXPECT_THAT(narrow[2], AllClose(wide[2], 16 * 6e-8)) << one.name;
  }
}

TEST(ParzenTest, EveryNumberOfThreadsGivesTheSameBits) {
  const at::Tensor x = Random({1, 1, 40, 40, 41}, 1).to(at::kFloat);
  const at::Tensor y = Random({1, 1, 40, 40, 41}, 2).to(at::kFloat);
  const int before = at::get_num_threads();
  for (const Case& one : Cases()) {
    at::set_num_threads(1);
    const auto alone = ByKernel(one, x, y, at::Tensor());
    at::set_num_threads(3);
    const auto together = ByKernel(one, x, y, at::Tensor());
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT(together[i], TensorEq(alone[i])) << one.name;
    }
  }
  at::set_num_threads(before);
}

TEST(ParzenTest, PolynomialsAreTheGaussians) {
  // A voxel at a time: its weights are its histogram.
  const ParzenWindow window = GaussianWindow(32, 0, 1, 1, true, 0);
  const ParzenWindow value = ValueWindow(0);
  for (int i = 0; i <= 100; ++i) {
    const double intensity = i / 100.0;
    const at::Tensor x = at::full({1, 1, 1, 1}, intensity, at::kDouble);
    const at::Tensor found = HistogramByOperators(x, x, {}, window, value).x;
    double sum = 0;
    std::vector<double> expected;
    for (int bin = 0; bin < 32; ++bin) {
      const double distance = intensity * 31 - bin;
      expected.push_back(std::exp(-distance * distance / 2));
      sum += expected.back();
    }
    for (int bin = 0; bin < 32; ++bin) {
      EXPECT_NEAR(found[0][bin].item<double>(), expected[bin] / sum, 1e-7);
    }
  }
}

TEST(ParzenTest, AtAKinkTheSlopesToBothSidesAddUp) {
  // On bin 2 of a hat: one more in bin 3, one less in bin 1.
  const ParzenWindow hat = HatWindow(5, 0, 4);
  const at::Tensor x = at::full({1, 1, 1, 1}, 2., at::kDouble);
  for (const double bin : {0., 2., 4.}) {
    const at::Tensor y =
        at::full({1, 1, 1, 1}, bin, at::kDouble).requires_grad_();
    const at::Tensor value = ParzenLoss(
        "Test", x, y, {}, CubicSplineWindow(5, 0, 4), hat,
        [](const Histogram& histogram, const at::Tensor&) {
          const at::Tensor row = histogram.y.select(0, 0);
          return row[0] + 2 * row[1] + 4 * row[2] + 8 * row[3] + 16 * row[4];
        });
    value.backward();
    EXPECT_NEAR(y.grad().item<double>(),
                bin == 0   ? 2
                : bin == 2 ? 8 - 2
                           : -8,
                1e-12);
  }
}

}  // namespace
}  // namespace mir::losses
