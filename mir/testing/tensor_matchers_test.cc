#include "mir/testing/tensor_matchers.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>

namespace mir::testing {
namespace {

using ::testing::Not;

TEST(TensorMatchersTest, AllCloseIsRelativeToTheLargestValue) {
  const at::Tensor expected = at::full({2, 2}, 10.0);
  EXPECT_THAT(at::full({2, 2}, 10.05), AllClose(expected, 0.01));
  EXPECT_THAT(at::full({2, 2}, 10.2), Not(AllClose(expected, 0.01)));
}

TEST(TensorMatchersTest, ZerosCompareExactly) {
  EXPECT_THAT(at::zeros({3}), AllClose(at::zeros({3}), 0.0));
  EXPECT_THAT(at::full({3}, 1e-9), Not(AllClose(at::zeros({3}), 1e-3)));
}

TEST(TensorMatchersTest, ShapesMustBeEqual) {
  EXPECT_THAT(at::ones({1, 3}), Not(AllClose(at::ones({3}), 1.0)));
  EXPECT_THAT(at::Tensor(), Not(AllClose(at::ones({3}), 1.0)));
}

TEST(TensorMatchersTest, NonFiniteValuesMatchOnlyThemselves) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(at::full({2}, infinity), TensorEq(at::full({2}, infinity)));
  EXPECT_THAT(at::full({2}, nan), Not(AllClose(at::ones({2}), 1e9)));
}

TEST(TensorMatchersTest, TensorEqComparesTheDtypeToo) {
  EXPECT_THAT(at::ones({2}), TensorEq(at::ones({2})));
  EXPECT_THAT(at::ones({2}), Not(TensorEq(at::ones({2}, at::kDouble))));
}

}  // namespace
}  // namespace mir::testing
