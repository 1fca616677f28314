#include "mir/geometry/crop_or_pad.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mir/testing/tensor_matchers.h"

namespace mir::geometry {
namespace {

using ::mir::testing::TensorEq;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(CropOrPadTest, TheMiddleStaysAndTheEndGetsTheOneMore) {
  for (const at::ScalarType dtype :
       {at::kInt, at::kByte, at::kFloat, at::kBFloat16}) {
    const at::Tensor row = at::tensor({1, 2, 3, 4}).to(dtype);
    EXPECT_THAT(CropOrPad(row, {1}), TensorEq(at::tensor({2}).to(dtype)));
    EXPECT_THAT(CropOrPad(row, {2}), TensorEq(at::tensor({2, 3}).to(dtype)));
    EXPECT_THAT(CropOrPad(row, {7}, 9),
                TensorEq(at::tensor({9, 1, 2, 3, 4, 9, 9}).to(dtype)));
  }
}

TEST(CropOrPadTest, ActsOnTheLastAxes) {
  const at::Tensor volume = at::arange(12, at::kInt).view({2, 2, 3});
  EXPECT_THAT(
      CropOrPad(volume, {4, 1}, -1),
      TensorEq(at::tensor({-1, 1, 4, -1, -1, 7, 10, -1}).view({2, 4, 1})));
  EXPECT_THAT(CropOrPad(volume, {}), TensorEq(volume));
}

TEST(CropOrPadTest, PaddingAtTheEndLeavesLongAxes) {
  const at::Tensor volume = at::arange(4, at::kInt).view({2, 2});
  EXPECT_THAT(PadAtEnd(volume, {1, 3}, 7),
              TensorEq(at::tensor({0, 1, 7, 2, 3, 7}).view({2, 3})));
}

TEST(CropOrPadTest, GradientsGoToWhatIsLeft) {
  at::Tensor row = at::tensor({1.f, 2.f, 3.f}).requires_grad_();
  CropOrPad(CropOrPad(row, {1}), {5}).sum().backward();
  EXPECT_THAT(row.grad(), TensorEq(at::tensor({0.f, 1.f, 0.f})));
}

TEST(CropOrPadTest, SaysWhatItWanted) {
  const at::Tensor row = at::arange(3);
  EXPECT_THAT([&] { CropOrPad({}, {1}); },
              ThrowsMessage<c10::ValueError>(HasSubstr("undefined")));
  EXPECT_THAT(
      [&] {
        CropOrPad(row, {1, 1});
      },
      ThrowsMessage<c10::ValueError>(HasSubstr("last axes")));
  EXPECT_THAT([&] { PadAtEnd(row, {-1}); },
              ThrowsMessage<c10::ValueError>(HasSubstr("at least 0")));
}

}  // namespace
}  // namespace mir::geometry
