#ifndef MIR_GEOMETRY_RESIZE_H_
#define MIR_GEOMETRY_RESIZE_H_

#include <ATen/core/ATen_fwd.h>

#include "mir/geometry/warp_options.h"

namespace mir::geometry {

// Resamples an image to another number of voxels over the same extent: the
// outer faces stay where they are, so that along an axis voxel v of the result
// lies at (v + 0.5) * size / new_size - 0.5 of the image (PyTorch's
// align_corners=False). Beyond the outermost voxel centres the image is
// constant.
//
//   image    [N, C, D, H, W] or [N, C, H, W]  float16, bfloat16, float32 or
//                                             float64; with kNearest any dtype
//   sizes    the new spatial sizes, (D, H, W) or (H, W), each at least 1
//   returns  [N, C, sizes...]                 dtype and device of `image`
//
// kLinear weighs the two neighbours along each axis, in float32 (float64 for
// float64), under autocast too; it does not smooth before it shrinks. kNearest
// copies the voxel that (v + 0.5) * size / new_size falls into; halfway
// between two, the later one. Differentiable for floating dtypes. Thread-safe.
//
// Throws c10::ValueError if an argument is not as above.
at::Tensor ResizeImage(const at::Tensor& image, at::IntArrayRef sizes,
                       Interpolation interpolation = Interpolation::kLinear);

// Resizes a displacement as ResizeImage with kLinear does, and rescales its
// vectors: they are in voxels, so channel k is multiplied by the new size over
// the old one along axis k. The constant (1, 0, 0), at twice the size, is the
// constant (2, 0, 0).
//
//   displacement  [N, 3, D, H, W] or [N, 2, H, W]  float16, bfloat16, float32
//                                                  or float64; in voxels
//   sizes         as above
//   returns       [N, 3, sizes...] or [N, 2, sizes...]  float64 for float64,
//                                                       else float32
//
// Differentiable. Thread-safe. Throws c10::ValueError if an argument is not as
// above.
at::Tensor ResizeDisplacement(const at::Tensor& displacement,
                              at::IntArrayRef sizes);

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_RESIZE_H_
