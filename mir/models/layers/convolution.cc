#include "mir/models/layers/convolution.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/leaky_relu.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "mir/models/layers/convolve_volumes.h"
#include "mir/models/layers/weights.h"
#include "mir/precision/fp32_region.h"

namespace mir::models {
namespace {

// Convolves in the types of its arguments, or of autocast, which knows the
// operators by these names.
at::Tensor ByOperator(const at::Tensor& input, const at::Tensor& weight,
                      const at::Tensor& bias,
                      const ConvolutionOptions& options) {
  return options.ndims == 2
             ? at::conv2d(input, weight, bias, options.stride, options.padding)
             : at::conv3d(input, weight, bias, options.stride, options.padding);
}

// Outputs of one volume from which on ConvolveVolumes is worth it. Smaller ones
// take little time, and have the same bits as in Python by LibTorch.
constexpr int64_t kMostByOperator = 1 << 19;

// Whether ConvolveVolumes takes them; LibTorch has the words for what is wrong.
bool AreForConvolveVolumes(const std::vector<at::Tensor>& inputs,
                           const at::Tensor& weight, const at::Tensor& bias,
                           const ConvolutionOptions& options) {
  const at::ScalarType dtype = weight.scalar_type();
  if (options.ndims != 3 || options.kernel_size != 3 || options.stride != 1 ||
      options.padding != 1 || (dtype != at::kFloat && dtype != at::kDouble) ||
      at::autocast::is_autocast_enabled(at::kCPU)) {
    return false;
  }
  const at::Tensor& first = inputs.front();
  int64_t channels = 0;
  for (const at::Tensor& input : inputs) {
    if (!input.is_cpu() || input.layout() != at::kStrided ||
        input.scalar_type() != dtype || input.dim() != 5 ||
        input.numel() == 0 || input.size(0) != first.size(0) ||
        input.sizes().slice(2) != first.sizes().slice(2)) {
      return false;
    }
    channels += input.size(1);
  }
  return first.numel() / first.size(0) / first.size(1) * weight.size(0) >
             kMostByOperator &&
         weight.is_cpu() && weight.dim() == 5 && weight.size(1) == channels &&
         weight.sizes().slice(2) == at::IntArrayRef({3, 3, 3}) &&
         (!bias.defined() || (bias.is_cpu() && bias.scalar_type() == dtype));
}

}  // namespace

void CheckOptions(const ConvolutionOptions& options) {
  TORCH_CHECK_VALUE(options.ndims == 2 || options.ndims == 3,
                    "a convolution has 2 or 3 spatial axes, not ",
                    options.ndims);
  TORCH_CHECK_VALUE(
      options.in_channels > 0 && options.out_channels > 0 &&
          options.kernel_size > 0 && options.stride > 0 && options.padding >= 0,
      "channels, kernel size and stride of a convolution must be positive and "
      "its padding not negative, not ",
      options.in_channels, " to ", options.out_channels, " channels, kernel ",
      options.kernel_size, ", stride ", options.stride, ", padding ",
      options.padding);
}

at::Tensor Convolve(const at::Tensor& input, const at::Tensor& weight,
                    const at::Tensor& bias, const ConvolutionOptions& options) {
  if (AreForConvolveVolumes({input}, weight, bias, options)) {
    return ConvolveVolumes(input, weight, bias, /*negative_slope=*/1);
  }
  const at::IntArrayRef sizes = input.sizes().slice(2);
  const bool smaller_than_kernel =
      std::any_of(sizes.begin(), sizes.end(),
                  [&](int64_t size) { return size < options.kernel_size; });
  if (!input.is_cpu() || !smaller_than_kernel) {
    return ByOperator(input, weight, bias, options);
  }
  // The bfloat16 weight gradient of oneDNN (LibTorch 2.11) adds memory that it
  // never wrote there: wrong by chance, NaN at times.
  const precision::Fp32Region in_float32;
  return ByOperator(
             precision::ToComputeType(input), precision::ToComputeType(weight),
             bias.defined() ? precision::ToComputeType(bias) : bias, options)
      .to(input.scalar_type());
}

at::Tensor Convolve(const std::vector<at::Tensor>& inputs,
                    const at::Tensor& weight, const at::Tensor& bias,
                    const ConvolutionOptions& options, double negative_slope) {
  if (AreForConvolveVolumes(inputs, weight, bias, options)) {
    return ConvolveVolumes(inputs, weight, bias, negative_slope);
  }
  at::Tensor out =
      Convolve(inputs.size() == 1 ? inputs.front() : at::cat(inputs, /*dim=*/1),
               weight, bias, options);
  // In place: nothing else needs the convolution's output.
  return negative_slope == 1 ? out : at::leaky_relu_(out, negative_slope);
}

Convolution::Convolution(const ConvolutionOptions& options)
    : torch::nn::Module("Convolution"), options_(options) {
  CheckOptions(options);
  std::vector<int64_t> shape(2 + options.ndims, options.kernel_size);
  shape[0] = options.out_channels;
  shape[1] = options.in_channels;
  weight = register_parameter("weight", NewWeight(shape));
  if (options.bias) {
    bias = register_parameter("bias", NewWeight({options.out_channels}));
  }
  InitKaiming(weight, bias);
}

at::Tensor Convolution::forward(const at::Tensor& input) const {
  return Convolve(input, weight, bias, options_);
}

at::Tensor Convolution::forward(const std::vector<at::Tensor>& inputs,
                                double negative_slope) const {
  return Convolve(inputs, weight, bias, options_, negative_slope);
}

}  // namespace mir::models
