#ifndef MIR_GEOMETRY_WARP_H_
#define MIR_GEOMETRY_WARP_H_

#include <ATen/core/ATen_fwd.h>

#include "mir/geometry/warp_options.h"

namespace mir::geometry {

// Resamples `image` at x + displacement(x), for every voxel x (where exactly:
// `WarpConvention`).
//
//   image         [N, C, D, H, W] or [N, C, H, W]  float16, bfloat16, float32
//                                                  or float64
//   displacement  [N, 3, D, H, W] or [N, 2, H, W]  likewise, any of the four;
//                                                  in voxels; channel k along
//                                                  spatial axis k
//   returns       as `image`, contiguous, on its device
//
// Coordinates and weights are float32 (float64 for a float64 image) whatever
// the dtypes, under autocast too: bfloat16 cannot tell voxel 128 from 128.5.
// With kExact on the CPU, a zero displacement returns the image bit for bit,
// and so does a shift by whole voxels where it stays inside.
//
// Differentiable once, in both inputs; kNearest has a zero gradient to the
// displacement. A kNearestEdge sample that lies on or beyond the outermost
// voxel centre has a zero gradient to the displacement, as in PyTorch. On the
// CPU, values and gradients have the same bits for any number of threads.
// Thread-safe.
//
// Throws c10::ValueError if a shape, dtype or device is not as above, and, on
// the CPU, if a displacement is NaN or infinite (naming its index). Throws
// c10::NotImplementedError when differentiated twice.
at::Tensor Warp(const at::Tensor& image, const at::Tensor& displacement,
                const WarpOptions& options = {});

// Resamples `labels` at the voxel nearest to x + displacement(x); a sample
// outside the volume reads label 0.
//
//   labels        [N, C, D, H, W] or [N, C, H, W]  any integer dtype, or bool
//   displacement  as for `Warp`
//   returns       as `labels`: no label is converted on the way
//
// Halfway between two voxels the one of even index is read, as by `Warp` with
// kNearest. Coordinates are float32, float64 for a float64 displacement. Not
// differentiable. Thread-safe.
//
// Throws c10::ValueError as `Warp` does.
at::Tensor WarpLabels(const at::Tensor& labels, const at::Tensor& displacement,
                      WarpConvention convention = WarpConvention::kExact);

// Resamples `labels` as most papers do for the overlaps in their tables
// (TransMorph, MIR): interpolates the one-hot map of every label linearly, zero
// outside the volume, and takes the label whose map is largest. Borders come
// out smoother than those of WarpLabels, and overlaps a little larger.
//
// Where several labels share the largest value the lowest is taken, and where
// all maps are zero label 0. Arguments, result and errors as for WarpLabels.
// No map is held: on the CPU a voxel's eight neighbours are looked at, on other
// devices one label after the other.
at::Tensor WarpLabelsLinear(const at::Tensor& labels,
                            const at::Tensor& displacement,
                            WarpConvention convention = WarpConvention::kExact);

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_WARP_H_
