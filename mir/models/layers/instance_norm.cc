#include "mir/models/layers/instance_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/instance_norm.h>
#include <ATen/ops/leaky_relu.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <vector>

#include "mir/models/layers/kernels/instance_norm_cpu.h"

namespace mir::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kEpsilon = 1e-5;
// Values from which on the kernel is worth it. Fewer take little time, and have
// the same bits as in Python by LibTorch.
constexpr int64_t kMostByOperator = 1 << 21;

at::Tensor ByOperators(const at::Tensor& x, const at::Tensor& weight,
                       const at::Tensor& bias, double slope) {
  at::Tensor normal =
      at::instance_norm(x, weight, bias, /*running_mean=*/{},
                        /*running_var=*/{}, /*use_input_stats=*/true,
                        /*momentum=*/0.1, kEpsilon, /*cudnn_enabled=*/true);
  // In place: no gradient needs what is before.
  return slope == 1 ? normal : at::leaky_relu_(normal, slope);
}

template <typename T>
const T* DataOf(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
}

template <typename T>
T* OutDataOf(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<T>() : nullptr;
}

template <typename T>
kernels::Instances<T> InstancesOf(const at::Tensor& x, const at::Tensor& weight,
                                  const at::Tensor& bias, double slope) {
  const int64_t count = x.size(0) * x.size(1);
  return {DataOf<T>(x),      count,
          x.numel() / count, x.size(1),
          DataOf<T>(weight), DataOf<T>(bias),
          kEpsilon,          static_cast<T>(slope)};
}

class CpuInstanceNorm : public torch::autograd::Function<CpuInstanceNorm> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias,
                            double slope) {
    const at::Tensor source = x.contiguous();
    const at::Tensor scale = weight ? weight->contiguous() : at::Tensor();
    const at::Tensor shift = bias ? bias->contiguous() : at::Tensor();
    const at::Tensor out = at::empty(x.sizes(), x.options());
    const at::Tensor mean = at::empty({x.size(0) * x.size(1)}, x.options());
    const at::Tensor inverse_deviation = at::empty_like(mean);
    const auto run = [&](auto zero) {
      using T = decltype(zero);
      kernels::NormForward<T>(InstancesOf<T>(source, scale, shift, slope),
                              OutDataOf<T>(out), OutDataOf<T>(mean),
                              OutDataOf<T>(inverse_deviation));
    };
    x.scalar_type() == at::kDouble ? run(0.0) : run(0.0f);
    context->save_for_backward({x, weight.value_or(at::Tensor()),
                                bias.value_or(at::Tensor()), mean,
                                inverse_deviation});
    context->saved_data["slope"] = slope;
    return out;
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
    const double slope = context->saved_data["slope"].toDouble();
    variable_list results(4);  // The slope has none.
    if (at::GradMode::is_enabled()) {
      variable_list inputs;
      for (int i = 0; i < 3; ++i) {
        if (saved[i].requires_grad()) inputs.push_back(saved[i]);
      }
      const variable_list found = torch::autograd::grad(
          {ByOperators(x, weight, bias, slope)}, inputs, {gradients[0]},
          /*retain_graph=*/true, /*create_graph=*/true);
      for (int i = 0, next = 0; i < 3; ++i) {
        if (saved[i].requires_grad()) results[i] = found[next++];
      }
      return results;
    }
    const at::Tensor source = x.contiguous();
    const at::Tensor gradient = gradients[0].contiguous();
    const at::Tensor scale = weight.defined() ? weight.contiguous() : weight;
    const at::Tensor shift = bias.defined() ? bias.contiguous() : bias;
    if (x.requires_grad()) results[0] = at::empty(x.sizes(), x.options());
    if (weight.requires_grad()) results[1] = scale.new_zeros(weight.sizes());
    if (bias.requires_grad()) results[2] = shift.new_zeros(bias.sizes());
    const auto run = [&](auto zero) {
      using T = decltype(zero);
      kernels::NormBackward<T>(
          InstancesOf<T>(source, scale, shift, slope), DataOf<T>(saved[3]),
          DataOf<T>(saved[4]), DataOf<T>(gradient), OutDataOf<T>(results[0]),
          OutDataOf<T>(results[1]), OutDataOf<T>(results[2]));
    };
    x.scalar_type() == at::kDouble ? run(0.0) : run(0.0f);
    return results;
  }
};

}  // namespace

at::Tensor InstanceNorm(const at::Tensor& x, const at::Tensor& weight,
                        const at::Tensor& bias, double negative_slope) {
  const auto fits = [&](const at::Tensor& other) {
    return !other.defined() ||
           (other.is_cpu() && other.scalar_type() == x.scalar_type() &&
            other.sizes() == at::IntArrayRef({x.size(1)}));
  };
  const bool for_kernel =
      x.numel() > kMostByOperator && x.is_cpu() && x.layout() == at::kStrided &&
      x.dim() >= 3 && x.numel() > x.size(0) * x.size(1) &&
      (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble) &&
      fits(weight) && fits(bias) &&
      !at::autocast::is_autocast_enabled(at::kCPU);
  return for_kernel ? InstanceNormOnCpu(x, weight, bias, negative_slope)
                    : ByOperators(x, weight, bias, negative_slope);
}

at::Tensor InstanceNormOnCpu(const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias, double negative_slope) {
  const auto given = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt;
  };
  return CpuInstanceNorm::apply(x, given(weight), given(bias), negative_slope);
}

}  // namespace mir::models
