#include "mir/metrics/distance_transform.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "mir/testing/tensor_matchers.h"

namespace mir::metrics {
namespace {

using ::mir::testing::AllClose;
using ::mir::testing::TensorEq;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// The smallest of the distances to all set voxels.
at::Tensor ByAllPairs(const at::Tensor& mask, std::vector<double> spacing) {
  const at::Tensor size = at::tensor(spacing, at::kDouble);
  const at::Tensor all = at::nonzero(at::ones_like(mask)) * size;
  const at::Tensor set = at::nonzero(mask) * size;
  return (all.unsqueeze(1) - set.unsqueeze(0))
      .square()
      .sum(-1)
      .amin(1)
      .sqrt()
      .view(mask.sizes());
}

TEST(DistanceTransformTest, MeasuresAlongALine) {
  const at::Tensor mask = at::tensor({0, 0, 1, 0, 0, 0, 1}).to(at::kBool);
  EXPECT_THAT(DistanceTransform(mask, {0.5}),
              TensorEq(at::tensor({1., 0.5, 0., 0.5, 1., 0.5, 0.})));
}

TEST(DistanceTransformTest, EqualsTheSmallestOfAllDistances) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  for (const double share : {0.002, 0.02, 0.3}) {
    const at::Tensor mask = at::rand({11, 8, 13}, generator,
                                     at::TensorOptions(at::kDouble)) < share;
    ASSERT_TRUE(mask.any().item<bool>());
    for (const std::vector<double>& spacing :
         {std::vector<double>{1, 1, 1}, {0.3, 2.7, 1.1}, {5, 0.1, 1}}) {
      EXPECT_THAT(DistanceTransform(mask, spacing),
                  AllClose(ByAllPairs(mask, spacing), 1e-15));
    }
    const at::Tensor plane = mask.amax(0).t();  // Not contiguous.
    EXPECT_THAT(DistanceTransform(plane, {1.5, 0.7}),
                AllClose(ByAllPairs(plane, {1.5, 0.7}), 1e-15));
  }
}

TEST(DistanceTransformTest, NothingSetIsInfinitelyFar) {
  const at::Tensor far =
      DistanceTransform(at::zeros({2, 3, 4}, at::kBool), {1., 1., 1.});
  EXPECT_TRUE(
      (far == std::numeric_limits<double>::infinity()).all().item<bool>());
  EXPECT_EQ(
      DistanceTransform(at::zeros({2, 0, 4}, at::kBool), {1., 1., 1.}).numel(),
      0);
}

TEST(DistanceTransformTest, SaysWhatItWanted) {
  const auto transform = [](const at::Tensor& mask,
                            std::vector<double> spacing) {
    return [=] { DistanceTransform(mask, spacing); };
  };
  EXPECT_THAT(transform({}, {1}),
              ThrowsMessage<c10::ValueError>(HasSubstr("undefined")));
  EXPECT_THAT(transform(at::zeros({2, 3}), {1, 1}),
              ThrowsMessage<c10::ValueError>(HasSubstr("of bool")));
  EXPECT_THAT(transform(at::zeros({2, 3, 4, 5}, at::kBool), {1, 1, 1, 1}),
              ThrowsMessage<c10::ValueError>(HasSubstr("[2, 3, 4, 5]")));
  for (const std::vector<double>& spacing :
       {std::vector<double>{1}, {1, 0}, {1, -1}, {1, std::nan("")}}) {
    EXPECT_THAT(transform(at::zeros({2, 3}, at::kBool), spacing),
                ThrowsMessage<c10::ValueError>(HasSubstr("positive")));
  }
}

}  // namespace
}  // namespace mir::metrics
