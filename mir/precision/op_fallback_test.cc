#include "mir/precision/op_fallback.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/fft_irfft.h>
#include <ATen/ops/fft_rfft.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/replication_pad3d.h>
#include <ATen/ops/upsample_nearest3d.h>
#include <ATen/ops/upsample_trilinear3d.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mir/precision/autocast.h"
#include "mir/precision/precision.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::precision {
namespace {

using mir::testing::AllClose;
using mir::testing::TensorEq;

struct Case {
  std::string name;
  Op op;
  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& weight)> call;
};

const std::vector<Case>& Cases() {
  static const auto& cases = *new std::vector<Case>{
      {"AveragePool2d", Op::kAveragePool2d,
       [](const at::Tensor& x, const at::Tensor&) {
         return at::avg_pool2d(x.select(2, 0), {2, 2}, {2, 2});
       }},
      {"AveragePool3d", Op::kAveragePool3d,
       [](const at::Tensor& x, const at::Tensor&) {
         return at::avg_pool3d(x, {2, 2, 2}, {2, 2, 2});
       }},
      {"UpsampleNearest3d", Op::kUpsampleNearest3d,
       [](const at::Tensor& x, const at::Tensor&) {
         return at::upsample_nearest3d(x, {10, 12, 14});
       }},
      {"UpsampleTrilinear3d", Op::kUpsampleTrilinear3d,
       [](const at::Tensor& x, const at::Tensor&) {
         return at::upsample_trilinear3d(x, {10, 12, 14},
                                         /*align_corners=*/true);
       }},
      {"ReplicationPad3d", Op::kReplicationPad3d,
       [](const at::Tensor& x, const at::Tensor&) {
         return at::replication_pad3d(x, {1, 1, 1, 1, 1, 1});
       }},
      {"DepthwiseConvolution3d", Op::kDepthwiseConvolution3d,
       [](const at::Tensor& x, const at::Tensor& weight) {
         return at::conv3d(x, weight, /*bias=*/{}, /*stride=*/1, /*padding=*/1,
                           /*dilation=*/1, /*groups=*/2);
       }},
      {"FourierTransform", Op::kFourierTransform,
       [](const at::Tensor& x, const at::Tensor&) {
         return at::fft_irfft(at::fft_rfft(x) * 2, x.size(4));
       }},
  };
  return cases;
}

at::Tensor Input(at::ScalarType dtype) {
  return at::rand({1, 2, 5, 6, 7}).to(dtype);
}
at::Tensor Weight(at::ScalarType dtype) {
  return at::rand({2, 1, 3, 3, 3}).to(dtype);
}

class OpFallbackTest : public ::testing::TestWithParam<Case> {};

TEST_P(OpFallbackTest, SixteenBitsGoForthAndBackInTheirOwnType) {
  const Op op = GetParam().op;
  const auto& call = GetParam().call;
  for (const auto& [dtype, epsilon] :
       {std::pair(at::kHalf, 9.8e-4), std::pair(at::kBFloat16, 7.9e-3)}) {
    const at::Tensor x = Input(dtype).requires_grad_();
    const at::Tensor weight = Weight(dtype);
    const at::Tensor found = WithFallback(op, call, x, weight);
    found.sum().backward();

    const at::Tensor wide = x.detach().to(at::kFloat).requires_grad_();
    const at::Tensor expected = call(wide, weight.to(at::kFloat));
    expected.sum().backward();
    EXPECT_EQ(found.scalar_type(), dtype);
    EXPECT_EQ(x.grad().scalar_type(), dtype);
    EXPECT_THAT(found, AllClose(expected, 2 * epsilon));
    EXPECT_THAT(x.grad(), AllClose(wide.grad(), 4 * epsilon));
  }
}

TEST_P(OpFallbackTest, OnlyWhatHasNoKernelRunsInFloat32) {
  const Op op = GetParam().op;
  const auto& call = GetParam().call;
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    bool runs = true;
    try {
      call(Input(dtype), Weight(dtype));
    } catch (const c10::Error&) {
      runs = false;
    }
    EXPECT_EQ(HasKernel(op, at::kCPU, dtype), runs) << dtype;
    at::ScalarType seen = at::kDouble;
    WithFallback(
        op,
        [&](const at::Tensor& x, const at::Tensor& weight) {
          seen = x.scalar_type();
          return call(x, weight);
        },
        Input(dtype), Weight(dtype));
    EXPECT_EQ(seen, runs ? dtype : at::kFloat) << dtype;
  }
}

TEST_P(OpFallbackTest, WiderTypesAreAsWithout) {
  const Op op = GetParam().op;
  const auto& call = GetParam().call;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor x = Input(dtype), weight = Weight(dtype);
    EXPECT_THAT(WithFallback(op, call, x, weight), TensorEq(call(x, weight)));
  }
}

TEST_P(OpFallbackTest, WhatRunsIsKnownWhereverItIsAskedFirst) {
  const Op op = GetParam().op;
  const bool known = HasKernel(op, at::kCPU, at::kHalf);
  const at::NoGradGuard no_grad;
  const Autocast autocast(at::kCPU, Precision::kBFloat16);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back(
        [&] { EXPECT_EQ(HasKernel(op, at::kCPU, at::kHalf), known); });
  }
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(Ops, OpFallbackTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST(OpFallbackTest, ASpectrumStaysComplex) {
  const at::Tensor spectrum = WithFallback(
      Op::kFourierTransform,
      [](const at::Tensor& x) { return at::fft_rfft(x); }, Input(at::kHalf));
  EXPECT_EQ(spectrum.scalar_type(), at::kComplexFloat);
}

}  // namespace
}  // namespace mir::precision
