#ifndef MIR_GEOMETRY_ZOOM_H_
#define MIR_GEOMETRY_ZOOM_H_

#include <ATen/core/ATen_fwd.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <vector>

namespace mir::geometry {

enum class SplineOrder {
  kNearest,  // 0
  kLinear,   // 1
  kCubic,    // 3: a cubic spline through the voxels, mirrored about the outer
             // voxels' centres; it may overshoot
};

// Resamples a volume to other sizes such that its outermost voxels' centres
// stay the outermost ones, as scipy.ndimage.zoom does (ResizeImage keeps the
// outer faces instead): along an axis voxel v of the result lies at v * (size -
// 1) / (new_size - 1) of the volume, at 0 where new_size is 1.
//
//   volume   [..., D, H, W]  floating; with kNearest any dtype; on any device
//   sizes    for as many of the last axes, each at least 1
//   returns  [..., sizes...] dtype of `volume`
//
// Computes in float64. kNearest copies; halfway between two voxels, the later
// one. Not differentiable. Thread-safe.
//
// Throws c10::ValueError if an argument is not as above.
at::Tensor Zoom(const at::Tensor& volume, at::IntArrayRef sizes,
                SplineOrder order);

// The sizes that resampling from one voxel size to another gives: size * from /
// to along each axis, rounded (halves to the even number), at least 1. With
// Zoom MIR's resample_by_pixdim.
//
// Throws c10::ValueError unless all have one length, and spacings are positive.
std::vector<int64_t> SizesForSpacing(at::IntArrayRef sizes,
                                     c10::ArrayRef<double> from_mm,
                                     c10::ArrayRef<double> to_mm);

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_ZOOM_H_
