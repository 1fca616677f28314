#include "mir/geometry/displacement_check.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

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
  const at::ScalarType dtype = field.scalar_type();
  TORCH_CHECK_VALUE(dtype == at::kFloat || dtype == at::kDouble ||
                        dtype == at::kHalf || dtype == at::kBFloat16,
                    function, ": wanted ", what,
                    " of float16, bfloat16, float32 or float64, came ", dtype);
}

}  // namespace mir::geometry
