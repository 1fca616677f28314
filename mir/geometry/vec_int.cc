#include "mir/geometry/vec_int.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cmath>

#include "mir/geometry/compose.h"
#include "mir/geometry/displacement_check.h"
#include "mir/precision/fp32_region.h"

namespace mir::geometry {

at::Tensor VecInt(const at::Tensor& velocity, int steps,
                  WarpConvention convention) {
  CheckDisplacement("VecInt", "velocity", velocity);
  TORCH_CHECK_VALUE(steps >= 0 && steps <= 32,
                    "VecInt: wanted 0 to 32 steps, came ", steps);
  at::Tensor displacement =
      precision::ToComputeType(velocity) * std::ldexp(1.0, -steps);
  for (int step = 0; step < steps; ++step) {
    displacement = Compose(displacement, displacement, convention);
  }
  return displacement;
}

}  // namespace mir::geometry
