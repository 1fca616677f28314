#include "mir/geometry/finite_check.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace mir::geometry {

void CheckFinite(const char* function, const char* what,
                 const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  // A sum is finite where its terms are; float64 holds that of any others.
  if (std::isfinite(tensor.sum(at::kDouble).item<double>())) return;
  const at::Tensor bad =
      at::isfinite(tensor).logical_not_().flatten().to(at::kByte);
  int64_t rest = bad.argmax().item<int64_t>();
  if (bad[rest].item<int64_t>() == 0) return;  // Large float64 values.
  std::vector<int64_t> index(tensor.dim());
  at::Tensor value = tensor;
  for (int64_t axis = tensor.dim() - 1; axis >= 0; --axis) {
    index[axis] = rest % tensor.size(axis);
    rest /= tensor.size(axis);
    value = value.select(axis, index[axis]);
  }
  TORCH_CHECK_VALUE(false, function, ": ", what, at::IntArrayRef(index), " is ",
                    value.item<double>(), "; wanted finite values");
}

}  // namespace mir::geometry
