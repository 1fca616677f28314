#include "mir/precision/fp32_forward.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <tuple>
#include <vector>

#include "mir/precision/autocast.h"
#include "mir/precision/precision.h"

namespace mir::precision {
namespace {

TEST(Fp32ForwardTest, ComputesInFloat32UnderAutocast) {
  const Fp32Forward product([](const at::Tensor& a, const at::Tensor& b) {
    return at::matmul(a, b);
  });
  const at::Tensor value = at::full({2, 2}, 1 + 0x1p-20);
  const Autocast autocast(at::kCPU, Precision::kBFloat16);
  const at::Tensor result = product(value, value);
  EXPECT_EQ(result.scalar_type(), at::kFloat);
  EXPECT_GT(result[0][0].item<double>(), 2);  // 2 in bfloat16.
}

TEST(Fp32ForwardTest, WidensHalfArgumentsAndTheirGradientsComeBackHalf) {
  const Fp32Forward sum([](const at::Tensor& a, double factor) {
    EXPECT_EQ(a.scalar_type(), at::kFloat);
    return (a * factor).sum();
  });
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    // 70000 ones overflow float16.
    const at::Tensor ones =
        at::full({70000}, 1, at::TensorOptions(dtype)).requires_grad_();
    const at::Tensor result = sum(ones, 1.0);
    EXPECT_EQ(result.item<double>(), 70000);
    result.backward();
    EXPECT_EQ(ones.grad().scalar_type(), dtype);
  }
  EXPECT_EQ(Fp32Forward([](const at::Tensor& a) { return a; })(
                at::full({1}, 1, at::kDouble))
                .scalar_type(),
            at::kDouble);
}

TEST(Fp32ForwardTest, WidensResultsInContainers) {
  const at::Tensor half = at::full({1}, 1, at::kHalf);
  const auto tuple =
      Fp32Forward([&](int count) { return std::make_tuple(half, count); })(3);
  EXPECT_EQ(std::get<0>(tuple).scalar_type(), at::kFloat);
  EXPECT_EQ(std::get<1>(tuple), 3);
  const auto vector = Fp32Forward([&](const std::vector<at::Tensor>& all) {
    EXPECT_EQ(all[0].scalar_type(), at::kFloat);
    return std::vector<at::Tensor>{half};
  })(std::vector<at::Tensor>{half});
  EXPECT_EQ(vector[0].scalar_type(), at::kFloat);
}

TEST(Fp32ForwardTest, TakesModules) {
  Fp32Forward linear(torch::nn::Linear(2, 3));
  const Autocast autocast(at::kCPU, Precision::kBFloat16);
  EXPECT_EQ(linear(at::full({1, 2}, 1, at::kHalf)).scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace mir::precision
