#include "mir/losses/arguments.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "mir/losses/kernels/finite.h"
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

void CheckDisplacement(const char* loss, const at::Tensor& displacement) {
  TORCH_CHECK_VALUE(displacement.defined(), loss,
                    ": wanted a displacement, got an undefined tensor");
  TORCH_CHECK_TYPE(displacement.is_floating_point(), loss,
                   ": wanted a floating-point displacement, got ",
                   displacement.scalar_type());
  const int64_t axes = displacement.dim() - 2;
  TORCH_CHECK_VALUE(
      (axes == 2 || axes == 3) && displacement.size(1) == axes &&
          displacement.numel() > 0,
      loss,
      ": wanted a displacement [N, 3, D, H, W] or [N, 2, H, W], and not "
      "empty; got ",
      displacement.sizes());
}

void CheckWeight(const char* loss, const at::Tensor& weight,
                 const at::Tensor& image) {
  TORCH_CHECK_VALUE(weight.defined(), loss,
                    ": wanted a weight map, got an undefined tensor");
  TORCH_CHECK_TYPE(
      weight.is_floating_point() || weight.scalar_type() == at::kBool, loss,
      ": wanted floating-point or bool weights, got ", weight.scalar_type());
  bool fits = weight.dim() == image.dim();
  for (int64_t axis = 0; fits && axis < image.dim(); ++axis) {
    fits = weight.size(axis) == image.size(axis) ||
           (axis < 2 && weight.size(axis) == 1);
  }
  TORCH_CHECK_VALUE(fits, loss,
                    ": wanted weights of the images' shape, or 1 for N or C; "
                    "got ",
                    weight.sizes(), " for ", image.sizes());
  TORCH_CHECK_VALUE(weight.device() == image.device(), loss,
                    ": wanted weights on ", image.device(), ", got them on ",
                    weight.device());
  if (!weight.is_cpu() || weight.scalar_type() == at::kBool) return;
  CheckFinite(loss, "weight", weight);
  const double smallest = weight.detach().min().item<double>();
  TORCH_CHECK_VALUE(smallest >= 0, loss, ": wanted weights of at least 0, got ",
                    smallest);
}

at::Tensor WeightedMean(const at::Tensor& values, const at::Tensor& weight) {
  const at::Tensor weights = weight.to(values.scalar_type()).expand_as(values);
  // A sum of weights that is 0 has values that count 0.
  const at::Tensor total = weights.sum(at::kDouble);
  return ((values * weights).sum(at::kDouble) /
          at::where(total == 0, at::ones_like(total), total))
      .to(values.scalar_type());
}

void CheckFinite(const char* loss, const char* name, const at::Tensor& tensor) {
  if (tensor.is_cpu() && tensor.is_contiguous()) {
    if (tensor.scalar_type() == at::kFloat &&
        kernels::AllFinite(tensor.const_data_ptr<float>(), tensor.numel())) {
      return;
    }
    if (tensor.scalar_type() == at::kDouble &&
        kernels::AllFinite(tensor.const_data_ptr<double>(), tensor.numel())) {
      return;
    }
  }
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

void CheckFiniteIf(bool check_on_gpu, const char* loss, const char* name,
                   const at::Tensor& tensor) {
  if (tensor.is_cpu() || check_on_gpu) CheckFinite(loss, name, tensor);
}

std::pair<double, double> IntensityRange(const at::Tensor& image) {
  const auto [least, most] = at::aminmax(image.detach());
  const double low = least.item<double>(), high = most.item<double>();
  if (low < high) return {low, high};
  // Adding 1 would change nothing about a large one.
  return low > 0 ? std::make_pair(std::min(low - 1, 0.0), low)
                 : std::make_pair(low, std::max(low + 1, 0.0));
}

at::Tensor ZeroOf(const at::Tensor& tensor) {
  return tensor.flatten().slice(0, 0, 1).sum() * 0;
}

at::ScalarType CommonComputeType(const at::Tensor& a, const at::Tensor& b) {
  return precision::ComputeType(a.scalar_type()) == at::kDouble
             ? at::kDouble
             : precision::ComputeType(b.scalar_type());
}

}  // namespace mir::losses
