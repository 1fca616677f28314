#include "mir/testing/fill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mir::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;

std::vector<float> Start(const at::Tensor& tensor, int64_t count) {
  const float* const data = tensor.const_data_ptr<float>();
  return {data, data + count};
}

// The check values that come with the rule.
TEST(FillTest, HashesNames) {
  EXPECT_EQ(Fnv1a64("encoder.in_conv.weight"), 0x828871f056596acfu);
}

TEST(FillTest, DrawsTheSequenceOfANameAndSeed) {
  const uint64_t hash = Fnv1a64("encoder.in_conv.weight");
  const double expected[2][4] = {{-0.3798912763595581, -0.05409109592437744,
                                  0.8553367853164673, 0.5708966255187988},
                                 {0.45262277126312256, -0.8112673759460449,
                                  -0.2710472345352173, -0.1191103458404541}};
  for (const uint64_t seed : {1, 2}) {
    for (uint64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(UniformValue(hash, i, seed), expected[seed - 1][i]);
    }
  }
}

TEST(FillTest, ScalesByTheKindOfEntry) {
  const at::Tensor weight =
      FillValues("encoder.in_conv.weight", {8, 1, 3, 3, 3}, 2, 1);
  EXPECT_THAT(weight.sizes(), ElementsAre(8, 1, 3, 3, 3));
  EXPECT_THAT(Start(weight, 3),
              ElementsAre(FloatEq(-0.146220222), FloatEq(-0.0208196733),
                          FloatEq(0.329219282)));
  EXPECT_THAT(Start(FillValues("norm.weight", {8}, 1, 1), 3),
              ElementsAre(FloatEq(1.09358191), FloatEq(1.09124422),
                          FloatEq(1.08411527)));
  EXPECT_THAT(Start(FillValues("norm.bias", {8}, 1, 1), 3),
              ElementsAre(FloatEq(0.0732567534), FloatEq(0.0987875462),
                          FloatEq(-0.0815171823)));
  EXPECT_THAT(Start(FillValues("bn.running_mean", {8}, 1, 1), 3),
              ElementsAre(FloatEq(-0.0174905416), FloatEq(-0.0300445445),
                          FloatEq(0.0778372735)));
  EXPECT_THAT(Start(FillValues("bn.running_var", {8}, 1, 1), 3),
              ElementsAre(FloatEq(1.28530014), FloatEq(1.17756629),
                          FloatEq(1.29434323)));
}

TEST(FillTest, ACotangentIsTheBareSequence) {
  const at::Tensor cotangent = Cotangent("flow", {2, 3}, 1);
  EXPECT_THAT(cotangent.sizes(), ElementsAre(2, 3));
  const uint64_t hash = Fnv1a64("cotangent/flow");
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(cotangent.const_data_ptr<float>()[i], UniformValue(hash, i, 1));
  }
}

}  // namespace
}  // namespace mir::testing
