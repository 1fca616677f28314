#include "mir/metrics/dice.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace mir::metrics {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsNan;
using ::testing::ThrowsMessage;

at::Tensor Labels(std::vector<int64_t> labels,
                  at::ScalarType dtype = at::kInt) {
  return at::tensor(labels, at::kLong).to(dtype);
}

class DiceDtypeTest : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(DiceDtypeTest, CountsOverlapPerLabel) {
  // Label 1: 2 of 3 and 2 voxels. Label 2: 1 of 1 and 3. Label 5: in a alone.
  const DiceScores scores = Dice(Labels({0, 1, 1, 1, 2, 5, 0}, GetParam()),
                                 Labels({0, 1, 1, 2, 2, 2, 0}));
  EXPECT_THAT(scores.labels, ElementsAre(1, 2, 5));
  EXPECT_THAT(scores.dice,
              ElementsAre(DoubleEq(0.8), DoubleEq(0.5), DoubleEq(0)));
  EXPECT_DOUBLE_EQ(scores.mean, 1.3 / 3);
  EXPECT_EQ(scores.scored, 3);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, DiceDtypeTest,
                         ::testing::Values(at::kByte, at::kChar, at::kShort,
                                           at::kInt, at::kLong, at::kUInt16),
                         [](const auto& info) {
                           return std::string(c10::toString(info.param));
                         });

TEST(DiceTest, ScoresTheGivenLabelsInTheirOrder) {
  const DiceScores scores = Dice(Labels({0, 1, 1, 3}), Labels({0, 1, 0, 3}),
                                 std::vector<int64_t>{3, 0, 1});
  EXPECT_THAT(scores.labels, ElementsAre(3, 0, 1));
  EXPECT_THAT(scores.dice,
              ElementsAre(DoubleEq(1), DoubleEq(2. / 3), DoubleEq(2. / 3)));
}

TEST(DiceTest, LabelsThatNeitherHasAreLeftOutOfTheMean) {
  const DiceScores scores =
      Dice(Labels({0, 1, 1}), Labels({0, 1, 2}), std::vector<int64_t>{1, 2, 7});
  EXPECT_THAT(scores.dice, ElementsAre(DoubleEq(2. / 3), DoubleEq(0), IsNan()));
  EXPECT_DOUBLE_EQ(scores.mean, 1. / 3);
  EXPECT_EQ(scores.scored, 2);
}

TEST(DiceTest, NothingToScoreIsSaid) {
  const DiceScores background = Dice(Labels({0, 0}), Labels({0, 0}));
  EXPECT_THAT(background.labels, IsEmpty());
  EXPECT_THAT(background.mean, IsNan());
  EXPECT_EQ(background.scored, 0);
  EXPECT_EQ(Dice(Labels({}), Labels({})).scored, 0);
}

TEST(DiceTest, EqualSegmentationsScoreOneWhateverTheirLabels) {
  const int64_t large = (int64_t{1} << 62) + 1;
  const at::Tensor labels = Labels({large, large + 1, -3, 14175}, at::kLong);
  const DiceScores scores = Dice(labels, labels);
  EXPECT_THAT(scores.labels, ElementsAre(-3, 14175, large, large + 1));
  EXPECT_EQ(scores.mean, 1);
}

TEST(DiceTest, StridesDoNotMatter) {
  const at::Tensor a = Labels({1, 2, 3, 1, 2, 2}).view({2, 3});
  const at::Tensor b = Labels({1, 2, 2, 1, 3, 2}).view({2, 3});
  EXPECT_EQ(Dice(a.t(), b.t()).dice, Dice(a, b).dice);
}

TEST(DiceTest, SaysWhatWasWantedAndWhatCame) {
  const at::Tensor labels = Labels({0, 1});
  EXPECT_THAT([&] { Dice(at::Tensor(), labels); },
              ThrowsMessage<c10::ValueError>(HasSubstr("a is undefined")));
  EXPECT_THAT([&] { Dice(labels, labels.to(at::kFloat)); },
              ThrowsMessage<c10::ValueError>(
                  HasSubstr("wanted b of an integer dtype, came Float")));
  EXPECT_THAT(
      [&] {
        Dice(labels, Labels({0, 1, 2}));
      },
      ThrowsMessage<c10::ValueError>(
          HasSubstr("wanted segmentations of one shape, came [2] and [3]")));
  EXPECT_THAT(
      [&] {
        Dice(labels, labels, std::vector<int64_t>{4, 1, 4});
      },
      ThrowsMessage<c10::ValueError>(HasSubstr("label 4 is given twice")));
}

}  // namespace
}  // namespace mir::metrics
