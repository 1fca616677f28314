#include "mir/geometry/compose.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "mir/geometry/warp.h"
#include "mir/testing/gradient_check.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::geometry {
namespace {

using ::mir::testing::AllClose;
using ::mir::testing::GradientError;
using ::mir::testing::TensorEq;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

at::Tensor Rand(at::IntArrayRef sizes, uint64_t seed,
                at::ScalarType dtype = at::kFloat) {
  return at::rand(sizes, at::detail::createCPUGenerator(seed),
                  at::TensorOptions(dtype));
}

// Displaces along the last axis of a plane of one row.
at::Tensor Row(std::vector<double> shifts) {
  at::Tensor field = at::zeros({1, 2, 1, static_cast<int64_t>(shifts.size())});
  field.select(1, 1).copy_(at::tensor(shifts, at::kFloat).view({1, 1, -1}));
  return field;
}

TEST(ComposeTest, ReadsTheFirstWhereTheSecondPoints) {
  EXPECT_THAT(Compose(Row({1, 2, 4, 8}), Row({1, 1, 0.5, 1})),
              TensorEq(Row({3, 5, 6.5, 1})));
}

TEST(ComposeTest, WarpingOnceIsWarpingByTheFirstAndThenTheSecond) {
  const at::Tensor image = Rand({1, 1, 1, 6}, 1);
  const at::Tensor first = Row({1, 1, 2, 0, 1, 0});
  const at::Tensor second = Row({2, 1, 1, 1, -1, 0});
  EXPECT_THAT(Warp(image, Compose(first, second)),
              TensorEq(Warp(Warp(image, first), second)));
}

TEST(ComposeTest, ZeroIsNeutral) {
  const at::Tensor field = Rand({2, 3, 4, 5, 6}, 1);
  EXPECT_THAT(Compose(field, at::zeros_like(field)), TensorEq(field));
  EXPECT_THAT(Compose(at::zeros_like(field), field), TensorEq(field));
}

TEST(ComposeTest, MirCompatibleReadsWhereMirDoes) {
  // Of 3 voxels, v is read at v * 3 / 2 - 0.5: at -0.5, 1 and 2.5.
  EXPECT_THAT(
      Compose(Row({2, 4, 8}), Row({0, 0, 0}), WarpConvention::kMirCompatible),
      AllClose(Row({1, 4, 4}), 4 * 1.2e-7));
}

TEST(ComposeTest, ReturnsFloat32OrFloat64) {
  const at::Tensor field = Rand({1, 2, 4, 5}, 1);
  const at::Tensor half = field.to(at::kBFloat16);
  const at::Tensor expected = Compose(half.to(at::kFloat), half.to(at::kFloat));
  EXPECT_THAT(Compose(half, half), TensorEq(expected));
  EXPECT_EQ(Compose(field, field.to(at::kDouble)).scalar_type(), at::kDouble);
}

TEST(ComposeTest, GradientIsTheDerivative) {
  EXPECT_LT(GradientError(
                [](const std::vector<at::Tensor>& in) {
                  return Compose(in[0], in[1]);
                },
                {Rand({1, 3, 3, 4, 5}, 1, at::kDouble),
                 4 * Rand({1, 3, 3, 4, 5}, 2, at::kDouble) - 2}),
            1e-7);
}

TEST(ComposeTest, SaysWhatWasWantedAndWhatCame) {
  const at::Tensor field = at::zeros({1, 3, 4, 5, 6});
  const struct {
    at::Tensor first, second;
    const char* message;
  } cases[] = {
      {at::Tensor(), field, "Compose: first is undefined"},
      {field, at::zeros({1, 2, 4, 5, 6}),
       "wanted second [N, 3, D, H, W] or [N, 2, H, W], came [1, 2, 4, 5, 6]"},
      {at::zeros({3, 4, 5}), field, "came [3, 4, 5]"},
      {field, at::zeros({1, 3, 0, 5, 6}), "wanted second with voxels"},
      {field, field.to(at::kLong), "float64, came Long"},
      {field, at::zeros({1, 3, 4, 5, 7}), "wanted displacements of one shape"},
      {field, field + std::numeric_limits<float>::infinity(),
       "displacement[0, 0, 0, 0, 0] is inf"},
      {at::zeros({1}).expand({1, 3, 2048, 1024, 1024}), field,
       "fewer than 2^31 voxels per channel"},
  };
  for (const auto& bad : cases) {
    EXPECT_THAT([&] { Compose(bad.first, bad.second); },
                ThrowsMessage<c10::ValueError>(HasSubstr(bad.message)));
  }
}

}  // namespace
}  // namespace mir::geometry
