#include "mir/testing/gradient_check.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace mir::testing {

double GradientError(
    const std::function<at::Tensor(const std::vector<at::Tensor>&)>& function,
    const std::vector<at::Tensor>& inputs, double step) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) {
    TORCH_CHECK(input.scalar_type() == at::kDouble, "wanted float64");
    leaves.push_back(input.detach().clone().requires_grad_());
  }
  at::Tensor weights;
  const auto scalar = [&](const std::vector<at::Tensor>& arguments) {
    const at::Tensor result = function(arguments);
    TORCH_CHECK(result.scalar_type() == at::kDouble, "wanted float64");
    if (!weights.defined()) {
      weights = at::rand(result.sizes(), at::detail::createCPUGenerator(1),
                         at::TensorOptions(at::kDouble)) +
                0.5;
    }
    return (result * weights).sum();
  };
  scalar(leaves).backward();

  const at::NoGradGuard no_grad;
  double largest_gradient = 0;
  double largest_difference = 0;
  for (const at::Tensor& leaf : leaves) {
    const at::Tensor gradient =
        leaf.grad().defined() ? leaf.grad().contiguous() : at::zeros_like(leaf);
    for (int64_t i = 0; i < leaf.numel(); ++i) {
      double& element = leaf.mutable_data_ptr<double>()[i];
      const double value = element;
      element = value + step;
      const double above = scalar(leaves).item<double>();
      element = value - step;
      const double below = scalar(leaves).item<double>();
      element = value;
      const double analytic = gradient.const_data_ptr<double>()[i];
      const double difference =
          std::abs(analytic - (above - below) / (2 * step));
      largest_gradient = std::max(largest_gradient, std::abs(analytic));
      if (!std::isfinite(difference)) {
        return std::numeric_limits<double>::infinity();
      }
      largest_difference = std::max(largest_difference, difference);
    }
  }
  return largest_difference / std::max(largest_gradient, 1e-30);
}

std::vector<at::Tensor> GradientsAndOutput(
    const at::Tensor& out, const std::vector<at::Tensor>& leaves) {
  const at::Tensor weights =
      at::randn(out.sizes(), at::detail::createCPUGenerator(5),
                at::TensorOptions(at::kDouble))
          .to(out.scalar_type());
  std::vector<at::Tensor> results =
      torch::autograd::grad({out}, leaves, {weights});
  results.push_back(out.detach());
  return results;
}

}  // namespace mir::testing
