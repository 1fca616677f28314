#include "mir/data/random.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "mir/data/random_deformation.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::data {
namespace {

using mir::testing::TensorEq;

std::vector<RandomStream> Streams() {
  return {
      RandomStream({0}),    RandomStream({1}),       RandomStream({0, 0}),
      RandomStream({0, 1}), RandomStream({1, 0}),    RandomStream({}),
      RandomStream({7, 1}), RandomStream({1, 0, 0}), RandomStream({1, 0, 1})};
}

TEST(RandomStreamTest, IsAFunctionOfItsKey) {
  std::vector<RandomStream> once = Streams(), again = Streams();
  std::set<uint64_t> numbers;
  for (size_t stream = 0; stream < once.size(); ++stream) {
    for (int i = 0; i < 10; ++i) {
      const uint64_t number = once[stream].Next();
      EXPECT_EQ(again[stream].Next(), number);
      numbers.insert(number);
    }
  }
  EXPECT_EQ(numbers.size(), 10 * once.size());
  // Frozen: a change here changes the data of every run.
  EXPECT_EQ(RandomStream({7, 1}).Next(), uint64_t{16490340871074023306u});
}

TEST(RandomStreamTest, HasTheDistributionsItSays) {
  RandomStream random({3});
  double uniform = 0, normal = 0, square = 0;
  std::vector<int> counts(5, 0);
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    const double u = random.Uniform(2, 4);
    ASSERT_GE(u, 2);
    ASSERT_LT(u, 4);
    uniform += u / kDraws;
    const double n = random.Normal();
    normal += n / kDraws;
    square += n * n / kDraws;
    ++counts[random.Below(5)];
  }
  // Six standard errors.
  EXPECT_NEAR(uniform, 3, 6 * 0.577 / std::sqrt(kDraws));
  EXPECT_NEAR(normal, 0, 6 / std::sqrt(kDraws));
  EXPECT_NEAR(square, 1, 6 * 1.3 / std::sqrt(kDraws));
  for (const int count : counts) EXPECT_NEAR(count, kDraws / 5, 350);
}

TEST(SmoothRandomFieldTest, HasUnitVarianceAndTheSizeAsked) {
  RandomStream random({4});
  for (const std::vector<int64_t>& size :
       {std::vector<int64_t>{40}, {20, 30}, {9, 10, 11}}) {
    std::vector<at::Tensor> fields;
    for (int i = 0; i < 300; ++i) {
      fields.push_back(SmoothRandomField(size, 3.5, random));
      ASSERT_EQ(fields.back().sizes(), size);
    }
    EXPECT_NEAR(at::stack(fields).std().item<float>(), 1, 0.1);
  }
}

TEST(SmoothRandomFieldTest, IsSmoothAtTheScaleOfItsKnots) {
  RandomStream random({5});
  const at::Tensor field = SmoothRandomField({64, 64}, 16, random);
  for (const int64_t axis : {0, 1}) {
    const at::Tensor step =
        field.narrow(axis, 1, 63) - field.narrow(axis, 0, 63);
    const at::Tensor bend = step.narrow(axis, 1, 62) - step.narrow(axis, 0, 62);
    // A spline of unit variance: slopes about 1.4 and curvature about 2.7 per
    // knot (squared), and four times that at the most.
    EXPECT_LT(step.abs().max().item<float>(), 6. / 16);
    EXPECT_LT(bend.abs().max().item<float>(), 11. / 256);
  }
}

TEST(SmoothRandomFieldTest, RefusesImpossibleSizes) {
  RandomStream random({6});
  EXPECT_THROW(SmoothRandomField({}, 4, random), c10::ValueError);
  EXPECT_THROW(SmoothRandomField({2, 2, 2, 2}, 4, random), c10::ValueError);
  EXPECT_THROW(SmoothRandomField({4, 0}, 4, random), c10::ValueError);
  EXPECT_THROW(SmoothRandomField({4, 4}, 0.5, random), c10::ValueError);
}

// The smallest area ratio of a 2-D deformation, by forward differences.
float SmallestJacobian(const at::Tensor& displacement) {
  const at::Tensor u = displacement[0];
  const int64_t rows = u.size(1) - 1, columns = u.size(2) - 1;
  const at::Tensor corner = u.narrow(1, 0, rows).narrow(2, 0, columns);
  const at::Tensor down = u.narrow(1, 1, rows).narrow(2, 0, columns) - corner;
  const at::Tensor right = u.narrow(1, 0, rows).narrow(2, 1, columns) - corner;
  return ((1 + down[0]) * (1 + right[1]) - down[1] * right[0])
      .min()
      .item<float>();
}

TEST(RandomDiffeomorphismTest, MovesFarWithoutFolds) {
  RandomStream random({8});
  DeformationOptions options;
  options.amplitude_voxels = 4;
  options.smoothness_voxels = 24;
  double square = 0;
  for (int i = 0; i < 20; ++i) {
    const at::Tensor displacement =
        RandomDiffeomorphism({61, 64}, options, random);
    ASSERT_EQ(displacement.sizes(), (std::vector<int64_t>{1, 2, 61, 64}));
    ASSERT_EQ(displacement.scalar_type(), at::kFloat);
    EXPECT_GT(SmallestJacobian(displacement), 0);
    square += displacement.slice(2, 16, 48)
                  .slice(3, 16, 48)
                  .square()
                  .mean()
                  .item<double>() /
              20;
    EXPECT_EQ(displacement.select(2, 0).abs().max().item<float>(), 0);
    EXPECT_EQ(displacement.select(3, 63).abs().max().item<float>(), 0);
  }
  EXPECT_NEAR(std::sqrt(square), 4, 1);
}

TEST(RandomDiffeomorphismTest, NothingMovesAlongAFlatAxis) {
  RandomStream random({11});
  const at::Tensor displacement =
      RandomDiffeomorphism({40, 40, 1}, DeformationOptions(), random);
  EXPECT_EQ(displacement.select(1, 2).abs().max().item<float>(), 0);
  EXPECT_GT(displacement.select(1, 0).abs().max().item<float>(), 1);
}

TEST(RandomDiffeomorphismTest, HasThreeChannelsInThreeDimensions) {
  RandomStream random({9}), again({9}), other({10});
  const DeformationOptions options;
  const at::Tensor displacement =
      RandomDiffeomorphism({8, 9, 10}, options, random);
  EXPECT_EQ(displacement.sizes(), (std::vector<int64_t>{1, 3, 8, 9, 10}));
  EXPECT_THAT(RandomDiffeomorphism({8, 9, 10}, options, again),
              TensorEq(displacement));
  EXPECT_FALSE(
      RandomDiffeomorphism({8, 9, 10}, options, other).equal(displacement));
}

}  // namespace
}  // namespace mir::data
