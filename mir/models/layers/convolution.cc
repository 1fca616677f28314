#include "mir/models/layers/convolution.h"

#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv3d.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <vector>

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

}  // namespace mir::models
