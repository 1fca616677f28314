#ifndef MIR_GEOMETRY_KERNELS_WARP_CPU_H_
#define MIR_GEOMETRY_KERNELS_WARP_CPU_H_

#include <ATen/core/ATen_fwd.h>

#include "mir/geometry/warp_options.h"

namespace mir::geometry::kernels {

// The CPU's side of `Warp`: no autograd, no argument checks. All tensors but
// gradients are contiguous CPU tensors of the shapes that `Warp` documents (2-D
// or 3-D, no spatial size of 0); image and displacement are both float32 or
// both float64.
//
// Everything is threaded, and has the same bits for any number of threads.

// Throws c10::ValueError with the index of the first displacement that is not
// finite, found in the same pass.
at::Tensor WarpForward(const at::Tensor& image, const at::Tensor& displacement,
                       const WarpOptions& options);

// As WarpForward with kNearest and kZero, for labels of any integer dtype.
at::Tensor WarpLabelsForward(const at::Tensor& labels,
                             const at::Tensor& displacement,
                             WarpConvention convention);

// As `WarpLabelsLinear`, for labels of any integer dtype. Looks at eight
// neighbours per voxel, whatever the number of labels.
at::Tensor WarpLabelsLinearForward(const at::Tensor& labels,
                                   const at::Tensor& displacement,
                                   WarpConvention convention);

// The gradient to the displacement, given that to the warped image, of any
// strides.
at::Tensor WarpBackwardToDisplacement(const at::Tensor& gradient,
                                      const at::Tensor& image,
                                      const at::Tensor& displacement,
                                      const WarpOptions& options);

// The gradient to the image, likewise.
at::Tensor WarpBackwardToImage(const at::Tensor& gradient,
                               const at::Tensor& displacement,
                               const WarpOptions& options);

}  // namespace mir::geometry::kernels

#endif  // MIR_GEOMETRY_KERNELS_WARP_CPU_H_
