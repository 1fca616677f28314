#include "mir/geometry/integrate_velocity.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "mir/geometry/compose.h"
#include "mir/geometry/displacement_check.h"
#include "mir/geometry/finite_check.h"
#include "mir/geometry/vec_int.h"
#include "mir/precision/fp32_region.h"

namespace mir::geometry {

at::Tensor IntegrateVelocity(at::TensorList velocities, int steps,
                             WarpConvention convention) {
  constexpr char kName[] = "IntegrateVelocity";
  TORCH_CHECK_VALUE(!velocities.empty(), kName,
                    ": wanted at least one velocity, came none");
  for (const at::Tensor& velocity : velocities) {
    CheckDisplacement(kName, "velocity", velocity);
    TORCH_CHECK_VALUE(velocity.sizes() == velocities[0].sizes(), kName,
                      ": wanted velocities of one shape, came ",
                      velocities[0].sizes(), " and ", velocity.sizes());
    if (velocity.is_cpu()) CheckFinite(kName, "velocity", velocity);
  }
  const double interval = 1.0 / static_cast<double>(velocities.size());
  at::Tensor displacement;
  for (const at::Tensor& velocity : velocities) {
    const at::Tensor part = VecInt(
        precision::ToComputeType(velocity) * interval, steps, convention);
    displacement =
        displacement.defined() ? Compose(part, displacement, convention) : part;
  }
  return displacement;
}

}  // namespace mir::geometry
