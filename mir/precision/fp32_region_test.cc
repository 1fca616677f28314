#include "mir/precision/fp32_region.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>
#include <thread>

#include "mir/precision/autocast.h"

namespace mir::precision {
namespace {

at::ScalarType ProductDtype() {
  const at::Tensor ones = at::ones({2, 2});
  return at::matmul(ones, ones).scalar_type();
}

at::Float32Precision ConvolutionPrecision() {
  return at::globalContext().float32Precision(at::Float32Backend::CUDA,
                                              at::Float32Op::CONV);
}

TEST(ComputeTypeTest, OnlyFloat64StaysFloat64) {
  EXPECT_EQ(ComputeType(at::kDouble), at::kDouble);
  for (const at::ScalarType dtype :
       {at::kFloat, at::kHalf, at::kBFloat16, at::kInt, at::kByte}) {
    EXPECT_EQ(ComputeType(dtype), at::kFloat) << dtype;
  }
}

TEST(ComputeTypeTest, GradientsComeBackInTheTypeOfTheInput) {
  const at::Tensor half = at::ones({2}, at::kHalf).requires_grad_();
  const at::Tensor computed = ToComputeType(half);
  EXPECT_EQ(computed.scalar_type(), at::kFloat);
  computed.sum().backward();
  EXPECT_EQ(half.grad().scalar_type(), at::kHalf);

  const at::Tensor wide = at::ones({2}, at::kDouble);
  EXPECT_TRUE(ToComputeType(wide).is_same(wide));
}

TEST(Fp32RegionTest, TurnsAutocastOffAndBackOn) {
  const Autocast autocast(at::kCPU, Precision::kBFloat16);
  {
    const Fp32Region region;
    EXPECT_EQ(ProductDtype(), at::kFloat);
    const Fp32Region nested;
    EXPECT_EQ(ProductDtype(), at::kFloat);
  }
  EXPECT_EQ(ProductDtype(), at::kBFloat16);
}

TEST(Fp32RegionTest, TurnsTf32OffUntilTheLastRegionIsLeft) {
  // LibTorch's default; were it another, this test would say nothing.
  ASSERT_EQ(ConvolutionPrecision(), at::Float32Precision::TF32);
  {
    const Fp32Region region;
    EXPECT_TRUE(at::NoTF32Guard::should_disable_tf32());
    EXPECT_EQ(ConvolutionPrecision(), at::Float32Precision::IEEE);
    {
      const Fp32Region nested;
      std::thread([] { const Fp32Region in_another_thread; }).join();
    }
    EXPECT_TRUE(at::NoTF32Guard::should_disable_tf32());
    EXPECT_EQ(ConvolutionPrecision(), at::Float32Precision::IEEE);
  }
  EXPECT_FALSE(at::NoTF32Guard::should_disable_tf32());
  EXPECT_EQ(ConvolutionPrecision(), at::Float32Precision::TF32);
}

TEST(Fp32RegionTest, AnExceptionRestoresToo) {
  try {
    const Fp32Region region;
    throw std::runtime_error("in the region");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(at::NoTF32Guard::should_disable_tf32());
  EXPECT_EQ(ConvolutionPrecision(), at::Float32Precision::TF32);
}

}  // namespace
}  // namespace mir::precision
