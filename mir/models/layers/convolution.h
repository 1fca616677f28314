#ifndef MIR_MODELS_LAYERS_CONVOLUTION_H_
#define MIR_MODELS_LAYERS_CONVOLUTION_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <vector>

namespace mir::models {

struct ConvolutionOptions {
  int64_t ndims = 3;  // Spatial axes: 2 or 3.
  int64_t in_channels = 1;
  int64_t out_channels = 1;
  int64_t kernel_size = 3;  // Along every axis, as the following.
  int64_t stride = 1;
  int64_t padding = 1;
  bool bias = true;
};

// Throws c10::ValueError where an option is out of range.
void CheckOptions(const ConvolutionOptions& options);

// Convolves `input` in its dtype, or that of autocast.
//
//   input    [N, in_channels, ...]
//   weight   [out_channels, in_channels, kernel_size, ...]
//   bias     [out_channels], or undefined for none
//   returns  [N, out_channels, ...]; 16-bit under autocast
//
// On the CPU, an input that is smaller than the kernel along an axis is
// convolved in float32 (float64 for float64) and comes back in its own dtype;
// large float32 and float64 volumes by `ConvolveVolumes` where the kernel is as
// it says.
at::Tensor Convolve(const at::Tensor& input, const at::Tensor& weight,
                    const at::Tensor& bias, const ConvolutionOptions& options);

// The same for inputs [N, C_i, ...] taken as if concatenated along the
// channels, and a leaky ReLU of the result; a slope of 1 is none.
at::Tensor Convolve(const std::vector<at::Tensor>& inputs,
                    const at::Tensor& weight, const at::Tensor& bias,
                    const ConvolutionOptions& options, double negative_slope);

// A convolution whose number of spatial axes is chosen at run time. Parameters,
// their names (`weight`, `bias`) and their initialisation, random draws
// included, are those of torch.nn.Conv2d and Conv3d.
class Convolution : public torch::nn::Module {
 public:
  // Throws c10::ValueError where an option is out of range.
  explicit Convolution(const ConvolutionOptions& options);

  // `Convolve` with the parameters.
  at::Tensor forward(const at::Tensor& input) const;
  at::Tensor forward(const std::vector<at::Tensor>& inputs,
                     double negative_slope) const;

  at::Tensor weight;  // [out_channels, in_channels, kernel_size, ...]
  at::Tensor bias;    // [out_channels]; undefined without

 private:
  ConvolutionOptions options_;
};

}  // namespace mir::models

#endif  // MIR_MODELS_LAYERS_CONVOLUTION_H_
