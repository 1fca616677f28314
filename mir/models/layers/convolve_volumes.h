#ifndef MIR_MODELS_LAYERS_CONVOLVE_VOLUMES_H_
#define MIR_MODELS_LAYERS_CONVOLVE_VOLUMES_H_

#include <ATen/core/ATen_fwd.h>

namespace mir::models {

// Convolves volumes on the CPU with kernels of 3 x 3 x 3, stride 1 and a
// padding of one zero, and applies a leaky ReLU: by Winograd's minimal
// filtering, with half the multiplications of a convolution as it is written,
// and without copies of what is concatenated.
//
//   inputs   [N, C_i, D, H, W], taken as if concatenated along the channels
//   weight   [out, sum of C_i, 3, 3, 3]
//   bias     [out], or undefined for none
//   returns  [N, out, D, H, W]
//
// All float32 or all float64, not empty, on the CPU. `negative_slope`:
// positive; 1 for no ReLU. Differentiable in the tensors, any number of times
// (the second time by LibTorch's operators). The same bits for the same number
// of threads on one processor. Not subject to autocast.
at::Tensor ConvolveVolumes(at::TensorList inputs, const at::Tensor& weight,
                           const at::Tensor& bias, double negative_slope);

}  // namespace mir::models

#endif  // MIR_MODELS_LAYERS_CONVOLVE_VOLUMES_H_
