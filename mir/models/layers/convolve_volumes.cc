#include "mir/models/layers/convolve_volumes.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/leaky_relu_backward.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <tuple>
#include <vector>

#include "mir/models/layers/kernels/convolve3_cpu.h"

namespace mir::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::vector<at::Tensor> Contiguous(at::TensorList tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) {
    result.push_back(tensor.contiguous());
  }
  return result;
}

kernels::VolumeSize SizeOf(const at::Tensor& volumes) {
  return {volumes.size(2), volumes.size(3), volumes.size(4)};
}

// The channels of sample `n` of all.
template <typename T>
kernels::Channels<T> ChannelsOf(at::TensorList tensors, int64_t n) {
  kernels::Channels<T> channels;
  for (const at::Tensor& tensor : tensors) {
    const int64_t voxels = tensor.stride(1);
    const T* first = tensor.const_data_ptr<T>() + n * tensor.stride(0);
    for (int64_t c = 0; c < tensor.size(1); ++c) {
      channels.push_back(first + c * voxels);
    }
  }
  return channels;
}

template <typename T>
kernels::OutChannels<T> OutChannelsOf(at::TensorList tensors, int64_t n) {
  kernels::OutChannels<T> channels;
  for (const T* channel : ChannelsOf<T>(tensors, n)) {
    channels.push_back(const_cast<T*>(channel));
  }
  return channels;
}

template <typename T>
void Forward(at::TensorList inputs, const at::Tensor& weight,
             const at::Tensor& bias, double slope, const at::Tensor& out) {
  for (int64_t n = 0; n < out.size(0); ++n) {
    kernels::ConvolveForward<T>(
        ChannelsOf<T>(inputs, n), weight.const_data_ptr<T>(),
        bias.defined() ? bias.const_data_ptr<T>() : nullptr,
        static_cast<T>(slope), SizeOf(out), OutChannelsOf<T>(out, n));
  }
}

// What a backward pass starts from.
struct Gradient {
  at::Tensor gradient;
  at::Tensor activated;  // Undefined without a leaky ReLU.
  double slope;

  template <typename T>
  kernels::ActivatedGradient<T> Of(int64_t n) const {
    kernels::ActivatedGradient<T> result;
    result.gradient = ChannelsOf<T>(gradient, n);
    if (activated.defined()) result.activated = ChannelsOf<T>(activated, n);
    result.slope = static_cast<T>(slope);
    return result;
  }
};

template <typename T>
void BackwardToInputs(const Gradient& gradient, const at::Tensor& weight,
                      at::TensorList to_inputs) {
  for (int64_t n = 0; n < gradient.gradient.size(0); ++n) {
    kernels::ConvolveBackwardToInput<T>(
        gradient.Of<T>(n), weight.const_data_ptr<T>(),
        SizeOf(gradient.gradient), OutChannelsOf<T>(to_inputs, n));
  }
}

template <typename T>
void BackwardToWeight(const Gradient& gradient, at::TensorList inputs,
                      const at::Tensor& to_weight, const at::Tensor& to_bias) {
  for (int64_t n = 0; n < gradient.gradient.size(0); ++n) {
    kernels::ConvolveBackwardToWeight<T>(
        ChannelsOf<T>(inputs, n), gradient.Of<T>(n), SizeOf(gradient.gradient),
        to_weight.mutable_data_ptr<T>(),
        to_bias.defined() ? to_bias.mutable_data_ptr<T>() : nullptr);
  }
}

class VolumeConvolution : public torch::autograd::Function<VolumeConvolution> {
 public:
  static at::Tensor forward(AutogradContext* context, at::TensorList inputs,
                            const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias,
                            double slope) {
    const std::vector<at::Tensor> sources = Contiguous(inputs);
    std::vector<int64_t> sizes = sources.front().sizes().vec();
    sizes[1] = weight.size(0);
    const at::Tensor out = at::empty(sizes, weight.options());
    const at::Tensor kernel = weight.contiguous();
    const at::Tensor shift = bias ? bias->contiguous() : at::Tensor();
    if (weight.scalar_type() == at::kDouble) {
      Forward<double>(sources, kernel, shift, slope, out);
    } else {
      Forward<float>(sources, kernel, shift, slope, out);
    }
    variable_list saved = {weight, slope != 1 ? out : at::Tensor()};
    saved.insert(saved.end(), inputs.begin(), inputs.end());
    context->save_for_backward(saved);
    context->saved_data["slope"] = slope;
    context->saved_data["bias"] = bias.has_value();
    return out;
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& weight = saved[0];
    const at::TensorList inputs = at::TensorList(saved).slice(2);
    const auto inputs_count = static_cast<int64_t>(inputs.size());
    const bool has_bias = context->saved_data["bias"].toBool();
    const auto wanted = [&](int64_t edge) {
      return context->needs_input_grad(edge);
    };
    const Gradient gradient = {gradients[0].contiguous(), saved[1],
                               context->saved_data["slope"].toDouble()};
    const bool to_weight = wanted(inputs_count);
    const bool to_bias = has_bias && wanted(inputs_count + 1);
    std::vector<bool> to_inputs;
    for (int64_t i = 0; i < inputs_count; ++i) to_inputs.push_back(wanted(i));

    variable_list results = at::GradMode::is_enabled()
                                ? ByOperators(gradient, inputs, weight,
                                              to_inputs, to_weight, to_bias)
                                : ByKernels(gradient, inputs, weight, to_inputs,
                                            to_weight, to_bias);
    results.emplace_back();  // The slope has none.
    return results;
  }

 private:
  static variable_list ByKernels(const Gradient& gradient,
                                 at::TensorList inputs,
                                 const at::Tensor& weight,
                                 const std::vector<bool>& to_inputs,
                                 bool to_weight, bool to_bias) {
    const bool in_double = weight.scalar_type() == at::kDouble;
    variable_list results(inputs.size() + 2);
    std::vector<at::Tensor> targets, kernels_of_targets;
    int64_t channel = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const int64_t channels = inputs[i].size(1);
      if (to_inputs[i]) {
        results[i] = at::empty(inputs[i].sizes(), inputs[i].options());
        targets.push_back(results[i]);
        kernels_of_targets.push_back(
            weight.narrow(/*dim=*/1, channel, channels));
      }
      channel += channels;
    }
    if (!targets.empty()) {
      const at::Tensor kernel = at::cat(kernels_of_targets, /*dim=*/1);
      if (in_double) {
        BackwardToInputs<double>(gradient, kernel, targets);
      } else {
        BackwardToInputs<float>(gradient, kernel, targets);
      }
    }
    if (to_weight || to_bias) {
      const at::Tensor sums =
          at::zeros_like(weight, at::MemoryFormat::Contiguous);
      const at::Tensor bias_sums =
          to_bias ? sums.new_zeros({weight.size(0)}) : at::Tensor();
      const std::vector<at::Tensor> sources = Contiguous(inputs);
      if (in_double) {
        BackwardToWeight<double>(gradient, sources, sums, bias_sums);
      } else {
        BackwardToWeight<float>(gradient, sources, sums, bias_sums);
      }
      if (to_weight) results[inputs.size()] = sums;
      if (to_bias) results[inputs.size() + 1] = bias_sums;
    }
    return results;
  }

  // Differentiable.
  static variable_list ByOperators(const Gradient& gradient,
                                   at::TensorList inputs,
                                   const at::Tensor& weight,
                                   const std::vector<bool>& to_inputs,
                                   bool to_weight, bool to_bias) {
    at::Tensor slope = gradient.gradient;
    if (gradient.activated.defined()) {
      slope = at::leaky_relu_backward(slope, gradient.activated, gradient.slope,
                                      /*self_is_result=*/true);
    }
    const at::Tensor input = at::cat(inputs, /*dim=*/1);
    const auto [to_input, kernel, bias] = at::convolution_backward(
        slope, input, weight, /*bias_sizes=*/{{weight.size(0)}},
        /*stride=*/{1, 1, 1}, /*padding=*/{1, 1, 1}, /*dilation=*/{1, 1, 1},
        /*transposed=*/false, /*output_padding=*/{0, 0, 0}, /*groups=*/1,
        {true, to_weight, to_bias});
    variable_list results(inputs.size() + 2);
    int64_t channel = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const int64_t channels = inputs[i].size(1);
      if (to_inputs[i]) {
        results[i] = to_input.narrow(/*dim=*/1, channel, channels);
      }
      channel += channels;
    }
    if (to_weight) results[inputs.size()] = kernel;
    if (to_bias) results[inputs.size() + 1] = bias;
    return results;
  }
};

}  // namespace

at::Tensor ConvolveVolumes(at::TensorList inputs, const at::Tensor& weight,
                           const at::Tensor& bias, double negative_slope) {
  return VolumeConvolution::apply(
      inputs, weight,
      bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt,
      negative_slope);
}

}  // namespace mir::models
