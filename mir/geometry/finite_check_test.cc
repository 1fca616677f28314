#include "mir/geometry/finite_check.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace mir::geometry {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class FiniteCheckTest : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(FiniteCheckTest, NamesTheFirstValueThatIsNotFinite) {
  at::Tensor field = at::zeros({2, 3, 4, 5}, GetParam());
  EXPECT_NO_THROW(CheckFinite("Shoot", "momentum", field));
  field[1][2][3][4] = std::numeric_limits<float>::quiet_NaN();
  field[1][0][3][2] = -kInfinity;
  EXPECT_THAT([&] { CheckFinite("Shoot", "momentum", field); },
              ThrowsMessage<c10::ValueError>(
                  HasSubstr("Shoot: momentum[1, 0, 3, 2] is -inf; wanted")));
  // In the order of its axes, not of memory.
  const at::Tensor turned = field.transpose(0, 3);
  EXPECT_THAT(
      [&] { CheckFinite("Shoot", "momentum", turned); },
      ThrowsMessage<c10::ValueError>(HasSubstr("[2, 0, 3, 1] is -inf")));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, FiniteCheckTest,
                         ::testing::Values(at::kDouble, at::kFloat, at::kHalf,
                                           at::kBFloat16),
                         [](const auto& info) {
                           return std::string(c10::toString(info.param));
                         });

TEST(FiniteCheckTest, InfinitiesThatCancelAreFound) {
  at::Tensor values = at::zeros({2});
  values[0] = kInfinity;
  values[1] = -kInfinity;
  EXPECT_THAT([&] { CheckFinite("f", "values", values); },
              ThrowsMessage<c10::ValueError>(HasSubstr("values[0] is inf")));
}

TEST(FiniteCheckTest, LargeValuesAreFinite) {
  EXPECT_NO_THROW(CheckFinite(
      "f", "values",
      at::full({9}, std::numeric_limits<double>::max(), at::kDouble)));
  EXPECT_NO_THROW(CheckFinite("f", "values", at::zeros({0, 3})));
}

}  // namespace
}  // namespace mir::geometry
