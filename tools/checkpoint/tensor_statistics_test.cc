#include "tools/checkpoint/tensor_statistics.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace mir::tools {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(StatisticsOfTest, SkipsWhatIsNotFinite) {
  at::Tensor values = at::arange(-3, 5, at::kFloat);
  values[0] = -kInfinity;
  values[1] = kNan;
  values[7] = kInfinity;
  for (const at::ScalarType dtype :
       {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
    const TensorStatistics statistics = StatisticsOf(values.to(dtype));
    EXPECT_EQ(statistics.minimum.get<double>(), -1);
    EXPECT_EQ(statistics.maximum.get<double>(), 3);
    EXPECT_EQ(statistics.nonfinite, 3);
  }
  const TensorStatistics nothing = StatisticsOf(at::full({3}, kNan));
  EXPECT_TRUE(nothing.minimum.is_null());
  EXPECT_EQ(nothing.nonfinite, 3);
}

TEST(StatisticsOfTest, TakesEveryDtypeAndShape) {
  constexpr int64_t kLarge = (int64_t{1} << 62) + 1;
  EXPECT_EQ(StatisticsOf(at::full({}, kLarge, at::kLong)).maximum, kLarge);
  EXPECT_EQ(StatisticsOf(at::ones({2}, at::kBool)).minimum, 1);
  EXPECT_EQ(StatisticsOf(at::ones({2}).to(at::kUInt16)).minimum, 1);
  EXPECT_EQ(StatisticsOf(at::ones({2}).to(at::kUInt64)).minimum, 1.0);
  EXPECT_EQ(StatisticsOf(at::ones({2}).to(at::kFloat8_e5m2)).maximum, 1.0);
  EXPECT_TRUE(StatisticsOf(at::ones({2}, at::kComplexFloat)).minimum.is_null());
  EXPECT_TRUE(StatisticsOf(at::empty({0, 3})).minimum.is_null());
  // What is repeated costs nothing, and counts.
  const at::Tensor expanded =
      at::full({1, 2}, kNan).expand({int64_t{1} << 40, 2});
  EXPECT_EQ(StatisticsOf(expanded).nonfinite, int64_t{1} << 41);
}

TEST(StatisticsOfTest, LooksAtAllPiecesOfALargeTensor) {
  at::Tensor large = at::zeros({3, 700'001}, at::kFloat);
  large[2][700'000] = 7;
  large[0][0] = -7;
  large[1][350'000] = kNan;
  const TensorStatistics statistics = StatisticsOf(large.t());
  EXPECT_EQ(statistics.minimum.get<double>(), -7);
  EXPECT_EQ(statistics.maximum.get<double>(), 7);
  EXPECT_EQ(statistics.nonfinite, 1);
}

TEST(DifferenceOfTest, CountsAndMeasures) {
  const at::Tensor a = at::arange(4, at::kFloat);
  EXPECT_TRUE(DifferenceOf(a, a.clone()).bit_equal);
  at::Tensor b = a.clone();
  b[1] = 1.5;
  b[3] = 2.75;
  TensorDifference difference = DifferenceOf(a, b);
  EXPECT_FALSE(difference.bit_equal);
  EXPECT_EQ(difference.different, 2);
  EXPECT_EQ(difference.largest, 0.5);
  // Equal values of another dtype, or of another sign of zero.
  difference = DifferenceOf(a, a.to(at::kLong));
  EXPECT_FALSE(difference.bit_equal);
  EXPECT_EQ(difference.different, 0);
  difference = DifferenceOf(at::zeros({1}), -at::zeros({1}));
  EXPECT_FALSE(difference.bit_equal);
  EXPECT_EQ(difference.different, 0);
  // NaN equals itself here, and nothing else.
  difference = DifferenceOf(at::full({2}, kNan), at::full({2}, -kNan));
  EXPECT_EQ(difference.different, 0);
  difference = DifferenceOf(at::full({2}, kNan), at::zeros({2}));
  EXPECT_EQ(difference.different, 2);
  EXPECT_EQ(difference.largest, kInfinity);
}

}  // namespace
}  // namespace mir::tools
