#include "mir/geometry/displacement_check.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>

#include <cstdint>
#include <limits>

namespace mir::geometry {

void CheckDisplacement(const char* function, const char* what,
                       const at::Tensor& field) {
  TORCH_CHECK_VALUE(field.defined(), function, ": ", what, " is undefined");
  TORCH_CHECK_VALUE((field.dim() == 4 || field.dim() == 5) &&
                        field.size(1) == field.dim() - 2,
                    function, ": wanted ", what,
                    " [N, 3, D, H, W] or [N, 2, H, W], came ", field.sizes());
  TORCH_CHECK_VALUE(
      field.size(2) > 0 && field.size(-2) > 0 && field.size(-1) > 0, function,
      ": wanted ", what, " with voxels, came ", field.sizes());
  TORCH_CHECK_VALUE(c10::multiply_integers(field.sizes().slice(2)) <=
                        std::numeric_limits<int32_t>::max(),
                    function, ": wanted ", what,
                    " with fewer than 2^31 voxels per channel, came ",
                    field.sizes());
  const at::ScalarType dtype = field.scalar_type();
  TORCH_CHECK_VALUE(dtype == at::kFloat || dtype == at::kDouble ||
                        dtype == at::kHalf || dtype == at::kBFloat16,
                    function, ": wanted ", what,
                    " of float16, bfloat16, float32 or float64, came ", dtype);
}

}  // namespace mir::geometry
