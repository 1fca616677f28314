#include "mir/precision/autocast.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "mir/testing/status_matchers.h"

namespace mir::precision {
namespace {

using mir::testing::IsOkAndHolds;
using mir::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The dtype that a matrix product of float32 tensors computes in.
at::ScalarType ProductDtype() {
  const at::Tensor ones = at::ones({2, 2});
  return at::matmul(ones, ones).scalar_type();
}

TEST(AutocastTest, ProductsAreOfTheAskedType) {
  EXPECT_EQ(ProductDtype(), at::kFloat);
  {
    const Autocast autocast(at::kCPU, Precision::kBFloat16);
    EXPECT_EQ(ProductDtype(), at::kBFloat16);
  }
  {
    const Autocast autocast(at::kCPU, Precision::kFloat16);
    EXPECT_EQ(ProductDtype(), at::kHalf);
  }
  EXPECT_EQ(ProductDtype(), at::kFloat);
}

TEST(AutocastTest, AnotherDeviceIsNotTouched) {
  const Autocast autocast(at::kCUDA, Precision::kFloat16);
  EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCUDA));
  EXPECT_EQ(ProductDtype(), at::kFloat);
}

TEST(AutocastTest, ScopesNestAndRestore) {
  const at::ScalarType before = at::autocast::get_autocast_dtype(at::kCPU);
  {
    const Autocast outer(at::kCPU, Precision::kBFloat16);
    {
      const Autocast inner(at::kCPU, Precision::kFloat16);
      EXPECT_EQ(ProductDtype(), at::kHalf);
      const NoAutocast off;
      EXPECT_EQ(ProductDtype(), at::kFloat);
      const Autocast on_again(at::kCPU, Precision::kBFloat16);
      EXPECT_EQ(ProductDtype(), at::kBFloat16);
    }
    EXPECT_EQ(ProductDtype(), at::kBFloat16);
  }
  EXPECT_EQ(ProductDtype(), at::kFloat);
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), before);
}

TEST(AutocastTest, Float32ChangesNothingAtAll) {
  {
    const Autocast autocast(at::kCPU, Precision::kFloat32);
    EXPECT_EQ(ProductDtype(), at::kFloat);
  }
  const Autocast outer(at::kCPU, Precision::kBFloat16);
  const Autocast inner(at::kCPU, Precision::kFloat32);
  EXPECT_EQ(ProductDtype(), at::kBFloat16);
}

TEST(AutocastTest, AnExceptionRestoresToo) {
  try {
    const Autocast autocast(at::kCPU, Precision::kBFloat16);
    const NoAutocast off;
    throw std::runtime_error("in the scope");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_EQ(ProductDtype(), at::kFloat);
  // Were the nesting still counted, the next scope would keep its cache.
  EXPECT_EQ(at::autocast::increment_nesting(), 1);
  at::autocast::decrement_nesting();
}

TEST(AutocastTest, AStepBetweenScopesIsSeen) {
  // Autocast caches 16-bit copies of leaves that require gradients.
  at::Tensor weight = at::ones({2, 2}).requires_grad_();
  const at::Tensor ones = at::ones({2, 2});
  for (int step = 1; step <= 2; ++step) {
    {
      const Autocast autocast(at::kCPU, Precision::kBFloat16);
      const at::Tensor product = at::matmul(weight, ones);
      EXPECT_EQ(product.flatten()[0].item<double>(), 2.0 * step);
    }
    const at::NoGradGuard as_an_optimizer;
    weight.mul_(2);
  }
}

TEST(AutocastTest, OtherThreadsHaveTheirOwnState) {
  const Autocast autocast(at::kCPU, Precision::kBFloat16);
  bool enabled_there = true;
  std::thread([&enabled_there] {
    enabled_there = at::autocast::is_autocast_enabled(at::kCPU);
  }).join();
  EXPECT_FALSE(enabled_there);
}

TEST(RunnablePrecisionTest, Float16OnACpuIsFloat32WithAWarning) {
  std::string warning;
  EXPECT_THAT(RunnablePrecision(Precision::kFloat16, at::kCPU, &warning),
              IsOkAndHolds(Precision::kFloat32));
  EXPECT_THAT(warning, AllOf(HasSubstr("fp16 runs in fp32 on a CPU"),
                             HasSubstr("bf16")));
  EXPECT_THAT(RunnablePrecision(Precision::kFloat16, at::kCPU, nullptr),
              IsOkAndHolds(Precision::kFloat32));
}

TEST(RunnablePrecisionTest, OthersRunOnACpuWithoutAWarning) {
  for (const Precision wanted : {Precision::kFloat32, Precision::kBFloat16}) {
    std::string warning;
    EXPECT_THAT(RunnablePrecision(wanted, at::kCPU, &warning),
                IsOkAndHolds(wanted));
    EXPECT_THAT(warning, IsEmpty());
  }
}

TEST(RunnablePrecisionTest, BFloat16NeedsComputeCapability8) {
  const c10::Device gpu(at::kCUDA, 1);
  std::string warning;
  DeviceSupport support;
  support.available = true;
  EXPECT_THAT(
      RunnablePrecision(Precision::kBFloat16, gpu, support, &warning),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("capability 8.0"), HasSubstr("cuda:1"))));
  EXPECT_THAT(RunnablePrecision(Precision::kFloat16, gpu, support, &warning),
              IsOkAndHolds(Precision::kFloat16));
  support.bfloat16 = true;
  EXPECT_THAT(RunnablePrecision(Precision::kBFloat16, gpu, support, &warning),
              IsOkAndHolds(Precision::kBFloat16));
  EXPECT_THAT(warning, IsEmpty());
}

TEST(RunnablePrecisionTest, AGpuThatIsNotThereIsAnError) {
  // Far beyond what any machine has, so that this runs beside GPUs too.
  const c10::Device gpu(at::kCUDA, 100);
  EXPECT_THAT(RunnablePrecision(Precision::kBFloat16, gpu, nullptr),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("cuda:100, which is not available")));
  EXPECT_THAT(RunnablePrecision(Precision::kFloat32, gpu, nullptr),
              IsOkAndHolds(Precision::kFloat32));
}

}  // namespace
}  // namespace mir::precision
