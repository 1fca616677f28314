#include "mir/geometry/zoom.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "mir/testing/tensor_matchers.h"

namespace mir::geometry {
namespace {

using ::mir::testing::AllClose;
using ::mir::testing::TensorEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(ZoomTest, LinearAndCubicKeepTheOuterVoxelsAndARamp) {
  const at::Tensor ramp = at::arange(5, at::kDouble) * 3;
  EXPECT_THAT(Zoom(ramp, {9}, SplineOrder::kLinear),
              AllClose(at::arange(9, at::kDouble) * 1.5, 1e-15));
  EXPECT_THAT(Zoom(ramp, {3}, SplineOrder::kLinear),
              AllClose(at::arange(3, at::kDouble) * 6, 1e-15));
  EXPECT_THAT(Zoom(ramp, {1}, SplineOrder::kCubic),
              AllClose(at::zeros({1}, at::kDouble), 1e-15));
}

TEST(ZoomTest, CubicGoesThroughTheVoxelsAndIsSciPys) {
  const at::Tensor values = at::tensor({1., -2., 4., 0.5, 3.});
  const at::Tensor zoomed = Zoom(values, {9}, SplineOrder::kCubic);
  EXPECT_THAT(zoomed.slice(0, 0, 9, 2), AllClose(values, 1e-14));
  // scipy.ndimage.zoom(values, 9 / 5, order=3) of SciPy 1.17.1.
  EXPECT_THAT(
      zoomed,
      AllClose(at::tensor(
                   {1.000000000000001, -0.7276785714285718, -1.9999999999999998,
                    1.013392857142857, 4.000000000000001, 2.6116071428571423,
                    0.4999999999999998, 1.6026785714285714, 3.000000000000001}),
               1e-14));
}

TEST(ZoomTest, NearestCopiesAnyDtype) {
  for (const at::ScalarType dtype : {at::kInt, at::kByte, at::kBFloat16}) {
    // At 0, 0.5, 1, 1.5 and 2: halves go to the later one.
    EXPECT_THAT(
        Zoom(at::tensor({5, 6, 7}).to(dtype), {5}, SplineOrder::kNearest),
        TensorEq(at::tensor({5, 6, 6, 7, 7}).to(dtype)));
  }
}

TEST(ZoomTest, ActsOnTheLastAxesOneByOne) {
  const at::Tensor volume =
      at::rand({2, 4, 5, 1}, at::detail::createCPUGenerator(1));
  for (const SplineOrder order :
       {SplineOrder::kNearest, SplineOrder::kLinear, SplineOrder::kCubic}) {
    const at::Tensor zoomed = Zoom(volume, {3, 9, 2}, order);
    EXPECT_THAT(zoomed.sizes(), ElementsAre(2, 3, 9, 2));
    const at::Tensor by_axis =
        Zoom(Zoom(volume.squeeze(-1), {9}, order).transpose(1, 2), {3}, order)
            .transpose(1, 2);
    EXPECT_THAT(zoomed.select(3, 1), AllClose(by_axis, 1e-6));
    EXPECT_THAT(Zoom(volume, volume.sizes(), order), TensorEq(volume));
  }
}

TEST(ZoomTest, SizesAreRoundedAsPythonDoes) {
  EXPECT_THAT(SizesForSpacing({8, 10, 12}, {1.0, 1.2, 0.8}, {1.5, 1.0, 1.0}),
              ElementsAre(5, 12, 10));
  EXPECT_THAT(SizesForSpacing({5, 7, 1}, {1., 1., 1.}, {2., 2., 9.}),
              ElementsAre(2, 4, 1));
}

TEST(ZoomTest, SaysWhatItWanted) {
  const auto says = [](const char* text) {
    return ThrowsMessage<c10::ValueError>(HasSubstr(text));
  };
  const at::Tensor good = at::zeros({3, 3});
  EXPECT_THAT([&] { Zoom({}, {2}, SplineOrder::kLinear); }, says("undefined"));
  EXPECT_THAT([&] { Zoom(good.to(at::kInt), {2}, SplineOrder::kLinear); },
              says("floating"));
  EXPECT_THAT([&] { Zoom(good, {0}, SplineOrder::kLinear); },
              says("positive sizes"));
  EXPECT_THAT(
      [&] {
        Zoom(good, {2, 2, 2}, SplineOrder::kLinear);
      },
      says("last axes"));
  EXPECT_THAT([&] { SizesForSpacing({3}, {1.}, {0.}); },
              says("positive spacings"));
  EXPECT_THAT(
      [&] {
        SizesForSpacing({3}, {1., 1.}, {1.});
      },
      says("positive spacings"));
}

}  // namespace
}  // namespace mir::geometry
