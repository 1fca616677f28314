#ifndef MIR_METRICS_LANDMARK_ERROR_H_
#define MIR_METRICS_LANDMARK_ERROR_H_

#include <ATen/core/ATen_fwd.h>
#include <c10/util/ArrayRef.h>

#include <optional>

namespace mir::metrics {

// Target registration errors: how far the mapping takes each landmark of the
// fixed image from where it lies in the moving one, |x + u(x) - y|.
//
//   fixed         [K, 3] or [K, 2]  any real dtype; x, in voxels of the
//                                   displacement's grid (indices, 0 the centre
//                                   of the first voxel)
//   moving        [K, 3] or [K, 2]  likewise; y, in voxels of the moving image
//   displacement  [1, 3, D, H, W] or [1, 2, H, W]
//                                   float16, bfloat16, float32 or float64; u,
//                                   in voxels, channel k along spatial axis k;
//                                   none: u = 0, the errors before registration
//   spacing_mm    3 or 2, positive: the size of the moving image's voxels
//   returns       [K]               float64, in the unit of the spacing; on the
//                                   CPU
//
// u is interpolated linearly between voxels, and at landmarks outside the
// volume it is that of the nearest point inside: Learn2Reg's TRE, but that it
// reads 0 there. Computes in float64, without gradients. The mean over the
// landmarks is what is mostly reported. Deterministic. Thread-safe.
//
// Throws c10::ValueError if an argument is not as above, a landmark is not
// finite, or the displacement is not finite at one.
at::Tensor LandmarkErrors(const at::Tensor& fixed, const at::Tensor& moving,
                          const std::optional<at::Tensor>& displacement,
                          c10::ArrayRef<double> spacing_mm);

}  // namespace mir::metrics

#endif  // MIR_METRICS_LANDMARK_ERROR_H_
