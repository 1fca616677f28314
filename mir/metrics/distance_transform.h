#ifndef MIR_METRICS_DISTANCE_TRANSFORM_H_
#define MIR_METRICS_DISTANCE_TRANSFORM_H_

#include <ATen/core/ATen_fwd.h>
#include <c10/util/ArrayRef.h>

namespace mir::metrics {

// The Euclidean distance from the centre of every voxel to the centre of the
// nearest one that is set: 0 where it is set, infinity where none is.
//
//   mask        [D, H, W], [H, W] or [W]  bool; on any device
//   spacing_mm  one per axis, positive: the voxels' size, in any unit
//   returns     the shape of `mask`       float64, on the CPU; in that unit
//
// Exact: the lower envelope of parabolas, axis by axis, in linear time
// (Felzenszwalb and Huttenlocher, Distance Transforms of Sampled Functions,
// 2012). As scipy.ndimage.distance_transform_edt of what is not set.
// Deterministic. Thread-safe.
//
// Throws c10::ValueError if an argument is not as above.
at::Tensor DistanceTransform(const at::Tensor& mask,
                             c10::ArrayRef<double> spacing_mm);

}  // namespace mir::metrics

#endif  // MIR_METRICS_DISTANCE_TRANSFORM_H_
