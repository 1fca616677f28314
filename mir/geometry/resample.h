#ifndef MIR_GEOMETRY_RESAMPLE_H_
#define MIR_GEOMETRY_RESAMPLE_H_

#include <ATen/core/ATen_fwd.h>

#include <array>

#include "mir/geometry/warp_options.h"

namespace mir::geometry {

// Resamples a volume onto another grid, as ITK's (and SimpleITK's) resampling
// filter does: voxel x of the result reads the volume at result_to_volume * x.
//
//   volume            [D, H, W]  uint8, int8, int16, int32, int64, float16,
//                                bfloat16, float32 or float64; on the CPU
//   result_to_volume  affine map of voxel indices (d, h, w, 1), by rows; the
//                     last row is 0, 0, 0, 1
//   sizes             (D, H, W) of the result, each at least 1
//   interpolation     kLinear for floating dtypes; kNearest copies the nearest
//                     voxel; halfway between two, the later one
//   fill              what a voxel reads that lies more than half a voxel
//                     beyond the outermost voxel centres (up to there the
//                     volume is constant); representable in the volume's dtype
//   returns           [D, H, W]  dtype of `volume`
//
// Positions and weights are float64; positions are rounded to 2^-20 of a voxel,
// so that the rounding of a matrix does not decide which way halves go. Not
// differentiable; threaded, with the same bits for any number of threads.
// Thread-safe.
//
// Throws c10::ValueError if an argument is not as above.
at::Tensor ResampleTo(
    const at::Tensor& volume,
    const std::array<std::array<double, 4>, 4>& result_to_volume,
    at::IntArrayRef sizes, Interpolation interpolation = Interpolation::kLinear,
    double fill = 0);

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_RESAMPLE_H_
