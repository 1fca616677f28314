#ifndef MIR_GEOMETRY_COMPOSE_H_
#define MIR_GEOMETRY_COMPOSE_H_

#include <ATen/core/ATen_fwd.h>

#include "mir/geometry/warp_options.h"

namespace mir::geometry {

// Composes two displacements: warping by the result is, up to interpolation,
// warping by `first` and then the outcome by `second`. At voxel x it is
// second(x) + first(x + second(x)); outside the volume `first` is zero.
//
//   first, second  [N, 3, D, H, W] or [N, 2, H, W]  float16, bfloat16, float32
//                                                   or float64, of equal
//                                                   shape; in voxels
//   returns        of that shape; float64 if either is, else float32
//
// Computes in the type that it returns, under autocast too. Differentiable
// once. Thread-safe.
//
// Throws c10::ValueError if an argument is not as above, and, on the CPU, if
// `second` is not finite.
at::Tensor Compose(const at::Tensor& first, const at::Tensor& second,
                   WarpConvention convention = WarpConvention::kExact);

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_COMPOSE_H_
