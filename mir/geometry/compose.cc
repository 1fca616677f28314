#include "mir/geometry/compose.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "mir/geometry/displacement_check.h"
#include "mir/geometry/warp.h"

namespace mir::geometry {

at::Tensor Compose(const at::Tensor& first, const at::Tensor& second,
                   WarpConvention convention) {
  CheckDisplacement("Compose", "first", first);
  CheckDisplacement("Compose", "second", second);
  TORCH_CHECK_VALUE(first.sizes() == second.sizes(),
                    "Compose: wanted displacements of one shape, came ",
                    first.sizes(), " and ", second.sizes());
  const at::ScalarType compute =
      first.scalar_type() == at::kDouble || second.scalar_type() == at::kDouble
          ? at::kDouble
          : at::kFloat;
  const at::Tensor shift = second.to(compute);
  // In place: the warp's result is needed by no one else, its derivative
  // neither.
  return Warp(first.to(compute), shift, {convention}).add_(shift);
}

}  // namespace mir::geometry
