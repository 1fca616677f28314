#include "mir/geometry/jacobian.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <optional>

#include "mir/geometry/displacement_check.h"
#include "mir/geometry/kernels/jacobian_cpu.h"
#include "mir/precision/fp32_region.h"

namespace mir::geometry {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The derivative of `values` along dimension `dim`.
at::Tensor Derivative(const at::Tensor& values, int64_t dim) {
  const int64_t size = values.size(dim);
  if (size == 1) return at::zeros_like(values);
  const auto difference = [&](int64_t from, int64_t to, int64_t length) {
    return values.narrow(dim, to, length) - values.narrow(dim, from, length);
  };
  const at::Tensor first = difference(0, 1, 1);
  const at::Tensor last = difference(size - 2, size - 1, 1);
  if (size == 2) return at::cat({first, last}, dim);
  return at::cat({first, difference(0, 2, size - 2) * 0.5, last}, dim);
}

// By LibTorch's operators.
at::Tensor Determinant(const at::Tensor& field) {
  // Row i, column j: the derivative of axis i's coordinate along axis j.
  const auto entry = [&](int64_t i, int64_t j) {
    const at::Tensor derivative =
        Derivative(field.select(/*dim=*/1, i), /*dim=*/1 + j);
    return i == j ? derivative + 1 : derivative;
  };
  // The minor of row 0 and column `j`, of a volume.
  const auto minor = [&](int64_t j) {
    const int64_t left = j == 0 ? 1 : 0;
    const int64_t right = j == 2 ? 1 : 2;
    return entry(1, left) * entry(2, right) - entry(1, right) * entry(2, left);
  };
  if (field.dim() == 4) {
    return entry(0, 0) * entry(1, 1) - entry(0, 1) * entry(1, 0);
  }
  return entry(0, 0) * minor(0) - entry(0, 1) * minor(1) +
         entry(0, 2) * minor(2);
}

class CpuJacobian : public torch::autograd::Function<CpuJacobian> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& field) {
    context->save_for_backward({field});
    return kernels::JacobianForward(field);
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const at::Tensor field = context->get_saved_variables()[0];
    if (!at::GradMode::is_enabled()) {
      return {kernels::JacobianBackward(gradients[0], field)};
    }
    // The gradient is to be differentiated, too.
    return torch::autograd::grad({Determinant(field)}, {field}, {gradients[0]},
                                 /*retain_graph=*/std::nullopt,
                                 /*create_graph=*/true);
  }
};

}  // namespace

at::Tensor JacobianDeterminant(const at::Tensor& displacement) {
  CheckDisplacement("JacobianDeterminant", "displacement", displacement);
  const precision::Fp32Region fp32;
  const at::Tensor field = precision::ToComputeType(displacement);
  if (!field.is_cpu()) return Determinant(field);
  if (at::GradMode::is_enabled() && field.requires_grad()) {
    return CpuJacobian::apply(field.contiguous());
  }
  return kernels::JacobianForward(field.contiguous());
}

}  // namespace mir::geometry
