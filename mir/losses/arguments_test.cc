#include "mir/losses/arguments.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>

namespace mir::losses {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The message that `call` throws as an `Error`.
template <typename Error>
std::string Thrown(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return std::string("another type: ") + error.what();
  }
  return "nothing was thrown";
}

std::string PairError(const at::Tensor& fixed, const at::Tensor& moving) {
  return Thrown<c10::ValueError>(
      [&] { CheckImagePair("Loss", fixed, moving); });
}

TEST(CheckImagePairTest, AcceptsTwoAndThreeDimensionsOfAnyFloats) {
  EXPECT_NO_THROW(CheckImagePair("Loss", at::ones({1, 1, 4, 4}),
                                 at::ones({1, 1, 4, 4}, at::kHalf)));
  EXPECT_NO_THROW(CheckImagePair("Loss", at::ones({2, 3, 4, 4, 4}, at::kDouble),
                                 at::ones({2, 3, 4, 4, 4}, at::kBFloat16)));
}

TEST(CheckImagePairTest, SaysWhatWasWantedAndWhatCame) {
  EXPECT_THAT(PairError(at::ones({1, 1, 4, 4, 4}), at::ones({1, 1, 4, 4, 5})),
              AllOf(HasSubstr("Loss: "), HasSubstr("[N, C, D, H, W]"),
                    HasSubstr("fixed [1, 1, 4, 4, 4]"),
                    HasSubstr("moving [1, 1, 4, 4, 5]")));
  EXPECT_THAT(PairError(at::ones({4, 4, 4}), at::ones({4, 4, 4})),
              HasSubstr("fixed [4, 4, 4]"));
  EXPECT_THAT(PairError(at::ones({0, 1, 4, 4}), at::ones({0, 1, 4, 4})),
              HasSubstr("not empty"));
  EXPECT_THAT(PairError(at::Tensor(), at::ones({1, 1, 4, 4})),
              HasSubstr("undefined"));
  EXPECT_THAT(PairError(at::ones({1, 1, 4, 4}),
                        at::empty({1, 1, 4, 4}, at::TensorOptions(at::kMeta))),
              AllOf(HasSubstr("fixed on cpu"), HasSubstr("moving on meta")));
  EXPECT_THAT(Thrown<c10::TypeError>([] {
                CheckImagePair("Loss", at::ones({1, 1, 4, 4}),
                               at::ones({1, 1, 4, 4}, at::kInt));
              }),
              AllOf(HasSubstr("fixed Float"), HasSubstr("moving Int")));
}

TEST(CheckFiniteTest, NamesTheFirstIndex) {
  at::Tensor image = at::ones({2, 1, 3, 4});
  EXPECT_NO_THROW(CheckFinite("Loss", "moving", image));
  image[1][0][2][3] = std::numeric_limits<float>::quiet_NaN();
  image[1][0][1][2] = -std::numeric_limits<float>::infinity();
  EXPECT_THAT(
      Thrown<c10::ValueError>([&] { CheckFinite("Loss", "moving", image); }),
      HasSubstr("got moving = -inf at [1, 0, 1, 2]"));
  image[0][0][0][0] = -std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(
      Thrown<c10::ValueError>([&] { CheckFinite("Loss", "moving", image); }),
      HasSubstr("got moving = nan at [0, 0, 0, 0]"));
}

TEST(IntensityRangeTest, OfAConstantImageIsNotEmptyAndHoldsIt) {
  EXPECT_EQ(IntensityRange(at::arange(-2, 5, at::kFloat)),
            std::make_pair(-2.0, 4.0));
  for (const double value : {0.0, 0.5, -1000.25, 3e38, -3e38}) {
    const auto [low, high] =
        IntensityRange(at::ones({1, 1, 2, 2}, at::kDouble) * value);
    EXPECT_LT(low, high) << value;
    EXPECT_LE(low, value);
    EXPECT_GE(high, value);
  }
}

TEST(CommonComputeTypeTest, IsFloat64WhereEitherIs) {
  const at::Tensor half = at::ones({1}, at::kHalf);
  const at::Tensor wide = at::ones({1}, at::kDouble);
  EXPECT_EQ(CommonComputeType(half, half), at::kFloat);
  EXPECT_EQ(CommonComputeType(half, wide), at::kDouble);
  EXPECT_EQ(CommonComputeType(wide, half), at::kDouble);
}

}  // namespace
}  // namespace mir::losses
