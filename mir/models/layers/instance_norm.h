#ifndef MIR_MODELS_LAYERS_INSTANCE_NORM_H_
#define MIR_MODELS_LAYERS_INSTANCE_NORM_H_

#include <ATen/core/ATen_fwd.h>

namespace mir::models {

// Normalises each channel of each sample to mean 0 and variance 1 (eps 1e-5),
// scales and shifts it, and applies a leaky ReLU.
//
//   x             [N, C, ...]  floating
//   weight, bias  [C], or undefined for none
//   returns       as x
//
// `negative_slope`: 0 or more; 1 for no ReLU. Differentiable in the tensors,
// any number of times. Large inputs on the CPU by InstanceNormOnCpu, others,
// and under autocast, by torch.nn.functional's instance_norm and leaky_relu.
at::Tensor InstanceNorm(const at::Tensor& x, const at::Tensor& weight,
                        const at::Tensor& bias, double negative_slope);

// The same for float32 and float64 on the CPU, more than one value per channel,
// by a kernel of its own: in two passes over the memory, with the same bits for
// any number of threads. Not subject to autocast.
at::Tensor InstanceNormOnCpu(const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias, double negative_slope);

}  // namespace mir::models

#endif  // MIR_MODELS_LAYERS_INSTANCE_NORM_H_
