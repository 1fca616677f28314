#ifndef MIR_GEOMETRY_INTEGRATE_VELOCITY_H_
#define MIR_GEOMETRY_INTEGRATE_VELOCITY_H_

#include <ATen/core/ATen_fwd.h>

#include "mir/geometry/warp_options.h"

namespace mir::geometry {

// Integrates a velocity that changes in time over a unit of it: the unit is cut
// into as many equal intervals as there are velocities, each of which holds
// during one, in this order. Follows every voxel through all of them, as LDDMM
// does (Beg et al., IJCV 2005): x + displacement(x) is where it ends. Outside
// the volume a velocity is zero.
//
//   velocities  each [N, 3, D, H, W] or [N, 2, H, W], all of one shape;
//   float16,
//               bfloat16, float32 or float64; in voxels per unit of time;
//               channel k along spatial axis k
//   steps       0 to 32: how an interval is integrated. 0: by one step of
//               Euler's method; else by scaling and squaring, with as many
//               steps (VecInt), so that the result is a diffeomorphism wherever
//               each interval's is
//   returns     of their shape: displacement in voxels; float64 if any is
//               float64, else float32
//
// A velocity may stand there several times, which takes no memory: one that
// does not change is integrated by n steps of Euler's method if it stands there
// n times. The inverse is the integral of the opposite velocities in the
// opposite order.
//
// Computes in the type that it returns, under autocast too. Differentiable
// once. On the CPU, with the same bits for any number of threads. Thread-safe.
//
// Throws c10::ValueError if an argument is not as above, or, on the CPU, a
// velocity is not finite (naming its index).
at::Tensor IntegrateVelocity(
    at::TensorList velocities, int steps = 0,
    WarpConvention convention = WarpConvention::kExact);

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_INTEGRATE_VELOCITY_H_
