#ifndef MIR_GEOMETRY_LDDMM_H_
#define MIR_GEOMETRY_LDDMM_H_

#include <ATen/core/Tensor.h>

#include "mir/geometry/fourier.h"

namespace mir::geometry {

// Large deformation diffeomorphic metric mapping: geodesics of the metric
// <L v, v> on diffeomorphisms, by their initial momentum (Miller, Trouve and
// Younes, Geodesic Shooting for Computational Anatomy, 2006), and transport by
// a velocity.
//
//   m, v, u  [N, 3, D, H, W] or [N, 2, H, W]  float16, bfloat16, float32 or
//            float64: momentum, velocity (voxels per unit of time) and
//            displacement (voxels); channel k along spatial axis k
//
// The domain is periodic; derivatives are central differences, (f(x + 1) -
// f(x - 1)) / 2, in conservative form, so that what the equations conserve is
// lost to the time steps alone. Fields are to be smooth over a few voxels.
// Computes and returns float64 for float64, else float32, under autocast too.
// Thread-safe. Throws c10::ValueError if an argument is not as said.

enum class TimeStepping {
  kEuler,        // Error of first order in the time step.
  kRungeKutta4,  // Of fourth order; four times the work per step.
};

// What the backward pass keeps of a path of n steps, and computes again.
enum class PathMemory {
  kAll,         // All that the steps computed: nothing is computed again.
  kSteps,       // The states between steps: each step is computed once more.
  kLogarithmic  // 2 log2(n) states: each step is computed log2(n) times more.
};

struct PathOptions {
  int steps = 10;  // Time steps over the unit of time, at least 1.
  TimeStepping stepping = TimeStepping::kRungeKutta4;
  PathMemory memory = PathMemory::kLogarithmic;
};

// K m: the velocity of momentum m = L v is SobolevSmooth(m, l), and the
// momentum of velocity v is ApplySobolev(v, l).

// The kinetic energy of each sample, <m, K m> / 2, summed over voxels: [N].
// Constant along a geodesic. Differentiable.
at::Tensor KineticEnergy(const at::Tensor& momentum, const SobolevOperator& l);

struct Geodesic {
  at::Tensor momentum;  // At the end.
  // Of the inverse of the end's diffeomorphism: Warp(image, displacement) is
  // the image that has moved with it.
  at::Tensor displacement;
};

// Follows the geodesic of an initial momentum for a unit of time: integrates
// EPDiff,
//
//   dm/dt = -(Dv)^T m - Dm v - m div v,  v = K m,
//
// and the inverse's displacement, du/dt = -v - Du v. Energy and the sum of the
// momentum over voxels are conserved (by kEuler and kRungeKutta4 to their
// order), and so is the momentum in the body's frame, up to the grid's
// resolution.
//
// A step must not move anything further than a voxel or two: take more steps
// for larger momenta. Differentiable once with `memory` other than kAll, which
// is differentiable any number of times.
//
// Throws c10::ValueError too where, on the CPU, the path leaves the numbers:
// that wants more steps, or a smoother momentum.
Geodesic Shoot(const at::Tensor& initial_momentum, const SobolevOperator& l,
               const PathOptions& options = {});

// What a flow carries, and hence how.
enum class Carried {
  kImage,     // Values: dq/dt = -Dq v. Any number of channels.
  kDensity,   // Mass: dq/dt = -div(q v). Any number of channels.
  kMomentum,  // As in Shoot: dq/dt = -(Dv)^T q - Dq v - q div v.
};

// Carries `quantity` [N, C, D, H, W] or [N, C, H, W] along a velocity that does
// not change, for a unit of time. Sums of kDensity are conserved. For images
// with edges rather warp by a displacement: differences between voxels ripple
// there. Differentiable in both, as Shoot; throws as it does.
at::Tensor Transport(const at::Tensor& quantity, const at::Tensor& velocity,
                     Carried carried, const PathOptions& options = {});

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_LDDMM_H_
