#ifndef MIR_GEOMETRY_FIT_VELOCITY_H_
#define MIR_GEOMETRY_FIT_VELOCITY_H_

#include <ATen/core/ATen_fwd.h>
#include <ATen/core/Tensor.h>

#include <vector>

#include "mir/geometry/warp_options.h"

// Stationary velocities of given displacements, by optimisation, and what can
// be done with them. Fields are
//
//   [N, 3, D, H, W] or [N, 2, H, W]  float16, bfloat16, float32 or float64;
//                                    in voxels; channel k along spatial axis k
//
// and results float64 for float64, else float32, computed in that type, under
// autocast too. Not differentiable. Thread-safe. Throws c10::ValueError if an
// argument is not as said, and, on the CPU, if a field is not finite.
namespace mir::geometry {

enum class FitObjective { kMeanSquare, kMeanAbsolute };

struct FitVelocityOptions {
  int steps = 7;         // Of VecInt.
  int iterations = 500;  // At most.
  // Stops when the objective changes by less than this (squared voxels, or
  // voxels) between two iterations.
  double smallest_change = 1e-5;
  double learning_rate = 0.1;  // Of Adam; in voxels.
  FitObjective objective = FitObjective::kMeanSquare;
  WarpConvention convention = WarpConvention::kExact;
};

struct VelocityFit {
  at::Tensor velocity;
  // What the last iteration integrated: the displacement of the velocity
  // before its last update.
  at::Tensor displacement;
  double objective;  // Of that displacement.
  int iterations;    // That were made.
};

// Fits a stationary velocity whose integral (VecInt) is the displacement: Adam,
// from the displacement itself (MIR: fit_warp_to_svf, which calls the velocity
// 'disp' and the displacement 'svf').
VelocityFit FitVelocity(const at::Tensor& displacement,
                        const FitVelocityOptions& options = {});

struct FitVelocityFastOptions {
  int steps = 5;
  int coarse_iterations = 50;
  int fine_iterations = 10;
  // The coarse fit has this many times fewer voxels along each axis, rounded
  // down; with 1 it is made at full size.
  int downsampling = 2;
  double smallest_change = 1e-5;
  double learning_rate = 0.1;
  WarpConvention convention = WarpConvention::kExact;
  at::Tensor initial_velocity;  // Undefined: the displacement.
};

// Fits the velocity at a coarse size first, then refines it; the objective is
// the mean square (MIR: fit_warp_to_svf_fast). Returns the velocity.
at::Tensor FitVelocityFast(const at::Tensor& displacement,
                           const FitVelocityFastOptions& options = {});

// The inverse of a displacement: fits a velocity, and integrates its opposite
// (MIR: invert_warp_via_velocity, which defaults to 5 steps and 100
// iterations). `Invert` is exact where it converges; this is diffeomorphic.
at::Tensor InvertViaVelocity(const at::Tensor& displacement,
                             const FitVelocityOptions& options = {});

struct EnsembleMember {
  at::Tensor field;
  bool is_velocity = false;  // Else a displacement, to be fitted.
  double weight = 1;         // At least 0; weights are divided by their sum.
};

// The displacement of the weighted mean of velocities (log-Euclidean mean,
// Arsigny et al., 2006; MIR: ensemble_average, which defaults to 5 steps and
// 100 iterations). All fields have one shape.
at::Tensor EnsembleAverage(const std::vector<EnsembleMember>& members,
                           const FitVelocityOptions& options = {});

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_FIT_VELOCITY_H_
