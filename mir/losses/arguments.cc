#include "mir/losses/arguments.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/isfinite.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <string>
#include <vector>

#include "mir/precision/fp32_region.h"

namespace mir::losses {

void CheckImagePair(const char* loss, const at::Tensor& fixed,
                    const at::Tensor& moving) {
  TORCH_CHECK_VALUE(fixed.defined() && moving.defined(), loss,
                    ": wanted two images, got an undefined tensor");
  TORCH_CHECK_TYPE(fixed.is_floating_point() && moving.is_floating_point(),
                   loss, ": wanted floating-point images, got fixed ",
                   fixed.scalar_type(), " and moving ", moving.scalar_type());
  TORCH_CHECK_VALUE(
      fixed.sizes() == moving.sizes() &&
          (fixed.dim() == 4 || fixed.dim() == 5) && fixed.numel() > 0,
      loss,
      ": wanted two images of one shape, [N, C, D, H, W] or [N, C, H, W], and "
      "not empty; got fixed ",
      fixed.sizes(), " and moving ", moving.sizes());
  TORCH_CHECK_VALUE(fixed.device() == moving.device(), loss,
                    ": wanted both images on one device, got fixed on ",
                    fixed.device(), " and moving on ", moving.device());
}

void CheckFinite(const char* loss, const char* name, const at::Tensor& tensor) {
  const at::Tensor finite = at::isfinite(tensor.detach());
  if (finite.all().item<bool>()) return;
  const at::Tensor first = finite.logical_not().nonzero()[0].cpu();
  at::Tensor value = tensor.detach();
  std::vector<int64_t> index;
  for (int64_t axis = 0; axis < tensor.dim(); ++axis) {
    index.push_back(first[axis].item<int64_t>());
    value = value.select(0, index.back());
  }
  const double bad = value.item<double>();
  // Without the sign that a NaN may carry.
  const std::string shown = std::isnan(bad) ? "nan" : c10::str(bad);
  TORCH_CHECK_VALUE(false, loss, ": wanted finite values, got ", name, " = ",
                    shown, " at ", at::IntArrayRef(index));
}

at::ScalarType CommonComputeType(const at::Tensor& a, const at::Tensor& b) {
  return precision::ComputeType(a.scalar_type()) == at::kDouble
             ? at::kDouble
             : precision::ComputeType(b.scalar_type());
}

}  // namespace mir::losses
