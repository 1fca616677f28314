#ifndef MIR_MODELS_LAYERS_DOUBLE_RESOLUTION_H_
#define MIR_MODELS_LAYERS_DOUBLE_RESOLUTION_H_

#include <ATen/core/ATen_fwd.h>

namespace mir::models {

// Twice the resolution along each spatial axis, trilinear or bilinear.
//
//   x              [N, C, D, H, W] or [N, C, H, W]  floating
//   align_corners  where the outermost voxels lie: at their place, or else
//                  their outer edges do
//   returns        [N, C, 2 D, 2 H, 2 W] or likewise, in the dtype of x
//
// Differentiable any number of times. Large volumes on the CPU by
// DoubleResolutionOnCpu, others by torch.nn.functional.interpolate's operators,
// in float32 where they do not take the dtype.
at::Tensor DoubleResolution(const at::Tensor& x, bool align_corners);

// The same for volumes of float32 and float64 on the CPU, not empty, by a
// kernel of its own: axis by axis, with the same bits for any number of
// threads.
at::Tensor DoubleResolutionOnCpu(const at::Tensor& x, bool align_corners);

}  // namespace mir::models

#endif  // MIR_MODELS_LAYERS_DOUBLE_RESOLUTION_H_
