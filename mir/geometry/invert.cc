#include "mir/geometry/invert.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <c10/util/Exception.h>

#include "mir/geometry/displacement_check.h"
#include "mir/geometry/warp.h"
#include "mir/precision/fp32_region.h"

namespace mir::geometry {

Inverse Invert(const at::Tensor& displacement, const InvertOptions& options) {
  CheckDisplacement("Invert", "displacement", displacement);
  TORCH_CHECK_VALUE(options.max_iterations >= 1 && options.tolerance >= 0,
                    "Invert: wanted at least 1 iteration and a tolerance of 0 "
                    "or more, came ",
                    options.max_iterations, " and ", options.tolerance);
  const at::NoGradGuard no_grad;
  const precision::Fp32Region fp32;
  const at::Tensor field = precision::ToComputeType(displacement);
  const WarpOptions warp = {options.convention, Interpolation::kLinear,
                            Outside::kNearestEdge};
  Inverse inverse = {-field, 0, 0};
  if (field.numel() == 0) return inverse;
  // The first guess is v = -u, whose own iteration began at v = 0.
  at::Tensor residual = inverse.displacement + Warp(field, -field, warp);
  const auto worst = [&] {
    return at::linalg_vector_norm(residual, 2, /*dim=*/1).max().item<double>();
  };
  inverse.residual = worst();
  while (inverse.iterations < options.max_iterations &&
         inverse.residual > options.tolerance) {
    const at::Tensor next = inverse.displacement - residual;
    residual = next + Warp(field, next, warp);
    inverse.displacement = next;
    inverse.residual = worst();
    ++inverse.iterations;
  }
  return inverse;
}

}  // namespace mir::geometry
