#include "mir/data/synthetic_source.h"

#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "mir/testing/status_matchers.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::data {
namespace {

using mir::testing::IsOk;
using mir::testing::StatusIs;
using mir::testing::TensorEq;
using ::testing::HasSubstr;

std::unique_ptr<SyntheticSource> Source(const SyntheticOptions& options) {
  auto source = SyntheticSource::Make(options);
  EXPECT_THAT(source, IsOk());
  return *std::move(source);
}

void ExpectSame(const Pair& a, const Pair& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_THAT(a.fixed, TensorEq(b.fixed));
  EXPECT_THAT(a.moving, TensorEq(b.moving));
  EXPECT_THAT(a.fixed_labels, TensorEq(b.fixed_labels));
  EXPECT_THAT(a.moving_labels, TensorEq(b.moving_labels));
}

// The mean over labels 1 to `labels`, of those that are in either.
double MeanDice(const at::Tensor& a, const at::Tensor& b, int64_t labels) {
  double sum = 0;
  int64_t count = 0;
  for (int64_t label = 1; label <= labels; ++label) {
    const at::Tensor in_a = a.eq(label), in_b = b.eq(label);
    const double sizes = in_a.sum().item<double>() + in_b.sum().item<double>();
    if (sizes == 0) continue;
    sum += 2 * in_a.logical_and(in_b).sum().item<double>() / sizes;
    ++count;
  }
  return sum / count;
}

TEST(SyntheticSourceTest, MakesImagesAndLabelsInTwoAndThreeDimensions) {
  for (const std::vector<int64_t>& size :
       {std::vector<int64_t>{24, 32, 16}, {40, 33}}) {
    SyntheticOptions options;
    options.size = size;
    options.labels = 4;
    const auto pair = Source(options)->Get(0, 0);
    ASSERT_THAT(pair, IsOk());
    std::vector<int64_t> shape = {1};
    shape.insert(shape.end(), size.begin(), size.end());
    for (const at::Tensor& image : {pair->fixed, pair->moving}) {
      EXPECT_EQ(image.sizes(), shape);
      EXPECT_EQ(image.scalar_type(), at::kFloat);
      EXPECT_GE(image.min().item<float>(), 0);
      EXPECT_LE(image.max().item<float>(), 1);
      EXPECT_GT(image.std().item<float>(), 0.1);
      EXPECT_FALSE(image.requires_grad());
    }
    for (const at::Tensor& labels : {pair->fixed_labels, pair->moving_labels}) {
      EXPECT_EQ(labels.sizes(), shape);
      EXPECT_EQ(labels.scalar_type(), at::kInt);
      EXPECT_EQ(labels.min().item<int>(), 0);
      EXPECT_EQ(labels.max().item<int>(), 4);
      EXPECT_EQ(labels.select(1, 0).max().item<int>(), 0);  // Background.
    }
  }
}

TEST(SyntheticSourceTest, APairIsAFunctionOfSeedEpochAndIndex) {
  SyntheticOptions options;
  options.size = {16, 16, 16};
  options.seed = 5;
  const auto source = Source(options);
  const Pair first = *source->Get(2, 3);
  ExpectSame(*source->Get(2, 3), first);
  ExpectSame(*Source(options)->Get(2, 3), first);
  EXPECT_FALSE(source->Get(2, 4)->fixed.equal(first.fixed));
  EXPECT_FALSE(source->Get(3, 3)->fixed.equal(first.fixed));
  EXPECT_FALSE(source->Get(3, 2)->fixed.equal(first.fixed));
  options.seed = 6;
  EXPECT_FALSE(Source(options)->Get(2, 3)->fixed.equal(first.fixed));
}

TEST(SyntheticSourceTest, ValidationPairsAreHeldOutAndFixed) {
  SyntheticOptions options;
  options.size = {16, 16, 16};
  options.count = 4;
  const auto training = Source(options);
  options.validation = true;
  const auto validation = Source(options);
  const Pair pair = *validation->Get(0, 1);
  ExpectSame(*validation->Get(7, 1), pair);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    for (int64_t index = 0; index < 4; ++index) {
      EXPECT_FALSE(training->Get(epoch, index)->fixed.equal(pair.fixed));
    }
  }
}

TEST(SyntheticSourceTest, LeavesSomethingToLearn) {
  SyntheticOptions options;
  options.size = {32, 32, 32};
  const auto source = Source(options);
  double dice = 0;
  for (int64_t index = 0; index < 20; ++index) {
    const Pair pair = *source->Get(0, index);
    dice += MeanDice(pair.fixed_labels, pair.moving_labels, 5) / 20;
  }
  EXPECT_GT(dice, 0.6);
  EXPECT_LT(dice, 0.75);
  options.deformation = 0;
  const Pair still = *Source(options)->Get(0, 0);
  EXPECT_THAT(still.moving_labels, TensorEq(still.fixed_labels));
}

TEST(SyntheticSourceTest, GivesTheSameToThreadsAtOnce) {
  SyntheticOptions options;
  options.size = {16, 16, 16};
  const auto source = Source(options);
  std::vector<absl::StatusOr<Pair>> pairs(4, absl::UnknownError(""));
  std::vector<std::thread> threads;
  for (auto& pair : pairs) {
    threads.emplace_back([&] { pair = source->Get(1, 2); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& pair : pairs) ExpectSame(*pair, *source->Get(1, 2));
}

TEST(SyntheticSourceTest, RefusesWhatCannotBe) {
  const auto refused = [](auto change) {
    SyntheticOptions options;
    change(options);
    return SyntheticSource::Make(options).status();
  };
  const auto is = [](const char* message) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message));
  };
  EXPECT_THAT(refused([](auto& o) { o.size = {32}; }), is("got 32"));
  EXPECT_THAT(refused([](auto& o) { o.size = {32, 7}; }), is("got 32x7"));
  EXPECT_THAT(refused([](auto& o) { o.size = {32, 2000}; }), is("8 to 1024"));
  EXPECT_THAT(refused([](auto& o) { o.count = 0; }), is("at least 1 pair"));
  EXPECT_THAT(refused([](auto& o) { o.labels = 0; }), is("1 to 255 labels"));
  EXPECT_THAT(refused([](auto& o) { o.deformation = 0.5; }), is("got 0.5"));
  const auto source = Source(SyntheticOptions());
  for (const auto& [epoch, index] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 64}, {0, -1}, {-1, 0}}) {
    EXPECT_THAT(source->Get(epoch, index),
                StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("64")));
  }
}

}  // namespace
}  // namespace mir::data
