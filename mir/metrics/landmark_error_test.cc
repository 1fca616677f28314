#include "mir/metrics/landmark_error.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "mir/testing/tensor_matchers.h"

namespace mir::metrics {
namespace {

using ::mir::testing::AllClose;
using ::mir::testing::TensorEq;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

at::Tensor Points(std::vector<double> values, int64_t dims = 3) {
  return at::tensor(values, at::kDouble).view({-1, dims});
}

TEST(LandmarkErrorsTest, BeforeRegistrationIsTheDistanceInMillimetres) {
  // (3, 4, 0) voxels of (1, 2, 5) mm, and nothing.
  EXPECT_THAT(LandmarkErrors(Points({1, 1, 1, 5, 6, 7}),
                             Points({4, 5, 1, 5, 6, 7}), {}, {1., 2., 5.}),
              AllClose(at::tensor({std::sqrt(73.), 0.}), 1e-15));
  EXPECT_THAT(LandmarkErrors(at::tensor({0, 0}).view({1, 2}), Points({3, 4}, 2),
                             {}, {1., 1.}),
              TensorEq(at::tensor({5.})));
}

TEST(LandmarkErrorsTest, InterpolatesTheDisplacementAtTheFixedLandmark) {
  // u = 0.5 x along the first axis, so linear interpolation is exact; outside,
  // that of the nearest voxel.
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kHalf}) {
    at::Tensor field = at::zeros({1, 3, 5, 4, 3}, dtype);
    field[0][0] += 0.5 * at::arange(5).view({5, 1, 1});
    const at::Tensor fixed = Points({2.5, 1.25, 0, 7, -1, 9});
    const at::Tensor moving = Points({3.75, 1.25, 0, 9, -1, 8});
    EXPECT_THAT(LandmarkErrors(fixed, moving, field, {1., 1., 4.}),
                AllClose(at::tensor({0., 4.}), 1e-15));
  }
}

TEST(LandmarkErrorsTest, DirectionIsFromFixedToMoving) {
  at::Tensor field = at::zeros({1, 2, 4, 4});
  field.select(1, 1).fill_(2);
  EXPECT_THAT(
      LandmarkErrors(Points({1, 1}, 2), Points({1, 3}, 2), field, {1., 1.}),
      TensorEq(at::tensor({0.})));
  EXPECT_THAT(
      LandmarkErrors(Points({1, 3}, 2), Points({1, 1}, 2), field, {1., 1.}),
      TensorEq(at::tensor({4.})));
}

TEST(LandmarkErrorsTest, SaysWhatItWanted) {
  const at::Tensor points = Points({1, 1, 1});
  const at::Tensor field = at::zeros({1, 3, 4, 4, 4});
  const auto errors = [](const at::Tensor& fixed, const at::Tensor& moving,
                         std::optional<at::Tensor> displacement,
                         std::vector<double> spacing = {1, 1, 1}) {
    return [=] { LandmarkErrors(fixed, moving, displacement, spacing); };
  };
  const auto says = [](const char* text) {
    return ThrowsMessage<c10::ValueError>(HasSubstr(text));
  };
  EXPECT_THAT(errors({}, points, {}), says("fixed is undefined"));
  EXPECT_THAT(errors(points, points.t(), {}), says("wanted moving"));
  EXPECT_THAT(errors(points, at::zeros({2, 3}), {}), says("as many"));
  EXPECT_THAT(errors(points, points, {}, {1, 1}), says("positive"));
  EXPECT_THAT(errors(points, points, {}, {1, 1, 0}), says("positive"));
  EXPECT_THAT(errors(points, points, field[0]), says("[N, 3, D, H, W]"));
  EXPECT_THAT(errors(points, points, at::zeros({2, 3, 4, 4, 4})),
              says("one displacement"));
  EXPECT_THAT(
      errors(points * std::numeric_limits<double>::infinity(), points, {}),
      says("finite landmarks"));
  EXPECT_THAT(
      errors(points, points, field + std::numeric_limits<float>::infinity()),
      says("finite displacement"));
}

}  // namespace
}  // namespace mir::metrics
