#ifndef MIR_GEOMETRY_VEC_INT_H_
#define MIR_GEOMETRY_VEC_INT_H_

#include <ATen/core/ATen_fwd.h>

#include "mir/geometry/warp_options.h"

namespace mir::geometry {

// Integrates a stationary velocity over unit time by scaling and squaring, as
// MIR's (and VoxelMorph's) VecInt: starts from velocity / 2^steps, and composes
// the displacement with itself `steps` times. Outside the volume a
// displacement is zero.
//
//   velocity  [N, 3, D, H, W] or [N, 2, H, W]  float16, bfloat16, float32 or
//                                              float64; in voxels; channel k
//                                              along spatial axis k
//   steps     0 to 32
//   returns   [N, 3, D, H, W] or [N, 2, H, W]  displacement in voxels; float64
//                                              for float64, else float32
//
// Computes in the type that it returns, under autocast too. Differentiable
// once; keeps the fields of all steps for that. Thread-safe.
//
// Throws c10::ValueError if an argument is not as above, and, on the CPU with
// steps > 0, if the velocity is not finite.
at::Tensor VecInt(const at::Tensor& velocity, int steps = 7,
                  WarpConvention convention = WarpConvention::kExact);

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_VEC_INT_H_
