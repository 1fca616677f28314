#ifndef MIR_GEOMETRY_VEC_INT_H_
#define MIR_GEOMETRY_VEC_INT_H_

#include <ATen/core/ATen_fwd.h>

#include "mir/geometry/warp_options.h"

namespace mir::geometry {

// What VecInt holds for its backward pass, on the CPU.
enum class VecIntMemory {
  // The field of every step, in 4/3 of the velocity's memory each.
  kKeepFields,
  // The velocity alone; each step's field is computed again from it. About
  // twice the time at 7 steps, in half the memory. Other devices keep fields.
  kRecompute,
};

// Integrates a stationary velocity over unit time by scaling and squaring
// (Arsigny et al., 2006), as MIR's (and VoxelMorph's) VecInt: starts from
// velocity / 2^steps, and composes the displacement with itself `steps` times.
// Outside the volume a displacement is zero.
//
//   velocity  [N, 3, D, H, W] or [N, 2, H, W]  float16, bfloat16, float32 or
//                                              float64; in voxels; channel k
//                                              along spatial axis k
//   steps     0 to 32
//   returns   [N, 3, D, H, W] or [N, 2, H, W]  displacement in voxels; float64
//                                              for float64, else float32
//
// Computes in the type that it returns, under autocast too. Differentiable
// once. On the CPU, values and gradients have the same bits for any number of
// threads, and with either `memory`. Thread-safe.
//
// Throws c10::ValueError if an argument is not as above, and, on the CPU with
// steps > 0, if the velocity is not finite (naming its index). Throws
// c10::NotImplementedError when differentiated twice.
at::Tensor VecInt(const at::Tensor& velocity, int steps = 7,
                  WarpConvention convention = WarpConvention::kExact,
                  VecIntMemory memory = VecIntMemory::kKeepFields);

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_VEC_INT_H_
