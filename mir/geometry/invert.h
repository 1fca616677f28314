#ifndef MIR_GEOMETRY_INVERT_H_
#define MIR_GEOMETRY_INVERT_H_

#include <ATen/core/ATen_fwd.h>
#include <ATen/core/Tensor.h>

#include "mir/geometry/warp_options.h"

namespace mir::geometry {

struct InvertOptions {
  int max_iterations = 50;
  // Stops when no voxel's residual is longer than this, in voxels.
  double tolerance = 1e-3;
  WarpConvention convention = WarpConvention::kExact;
};

struct Inverse {
  at::Tensor displacement;  // As the one that was inverted.
  // At the worst voxel, how far x + v(x), displaced, lies from x; in voxels.
  double residual;
  int iterations;  // That were made.
};

// Inverts a displacement u by fixed-point iteration (Chen et al., "A simple
// fixed-point approach to invert a deformation field", 2008): the inverse v
// has v(x) = -u(x + v(x)). Outside the volume u is that of the nearest edge.
//
//   displacement  [N, 3, D, H, W] or [N, 2, H, W]  float16, bfloat16, float32
//                                                  or float64; in voxels
//   displacement of the result: of that shape; float64 for float64, else
//   float32
//
// Converges where u changes by less than a voxel per voxel in every direction;
// elsewhere, and where u folds, it need not: look at the residual. Computes in
// the type that it returns, under autocast too. Not differentiable.
// Thread-safe.
//
// Throws c10::ValueError if an argument is not as above, and, on the CPU, if
// `displacement` is not finite.
Inverse Invert(const at::Tensor& displacement,
               const InvertOptions& options = {});

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_INVERT_H_
