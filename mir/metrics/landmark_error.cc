#include "mir/metrics/landmark_error.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "mir/geometry/displacement_check.h"

namespace mir::metrics {
namespace {

using Point = std::array<double, 3>;  // The last is unused in 2-D.

// A displacement on the CPU, in float32 or float64.
class Interpolator {
 public:
  explicit Interpolator(const at::Tensor& displacement)
      : dims_(static_cast<int>(displacement.dim()) - 2),
        field_(displacement.detach()
                   .to(at::kCPU, displacement.scalar_type() == at::kDouble
                                     ? at::kDouble
                                     : at::kFloat)
                   .contiguous()) {}

  Point At(const Point& x) const {
    return field_.scalar_type() == at::kDouble
               ? Read(field_.const_data_ptr<double>(), x)
               : Read(field_.const_data_ptr<float>(), x);
  }

 private:
  template <typename T>
  Point Read(const T* values, const Point& x) const {
    std::array<int64_t, 3> lower, upper;  // Offsets, from the nearest voxels.
    Point share;                          // Of the upper one.
    for (int axis = 0; axis < dims_; ++axis) {
      const int64_t last = field_.size(2 + axis) - 1;
      const int64_t stride = field_.stride(2 + axis);
      const double at = std::clamp(x[axis], 0.0, static_cast<double>(last));
      const auto below = static_cast<int64_t>(at);
      lower[axis] = below * stride;
      upper[axis] = std::min(below + 1, last) * stride;
      share[axis] = at - static_cast<double>(below);
    }
    Point result = {0, 0, 0};
    for (int corner = 0; corner < 1 << dims_; ++corner) {
      double weight = 1;
      int64_t offset = 0;
      for (int axis = 0; axis < dims_; ++axis) {
        const bool is_upper = (corner >> axis & 1) != 0;
        weight *= is_upper ? share[axis] : 1 - share[axis];
        offset += is_upper ? upper[axis] : lower[axis];
      }
      if (weight == 0) continue;
      for (int axis = 0; axis < dims_; ++axis) {
        result[axis] += weight * static_cast<double>(
                                     values[axis * field_.stride(1) + offset]);
      }
    }
    return result;
  }

  int dims_;
  at::Tensor field_;
};

at::Tensor CheckedPoints(const char* name, const at::Tensor& points) {
  TORCH_CHECK_VALUE(points.defined(), "LandmarkErrors: ", name,
                    " is undefined");
  TORCH_CHECK_VALUE(points.dim() == 2 &&
                        (points.size(1) == 2 || points.size(1) == 3) &&
                        !points.is_complex(),
                    "LandmarkErrors: wanted ", name,
                    " [K, 3] or [K, 2] of real numbers, came ", points.sizes(),
                    " of ", points.scalar_type());
  at::Tensor checked = points.detach().to(at::kCPU, at::kDouble).contiguous();
  TORCH_CHECK_VALUE(std::isfinite(checked.sum().item<double>()),
                    "LandmarkErrors: wanted finite landmarks, came a NaN or "
                    "an infinity among ",
                    name);
  return checked;
}

}  // namespace

at::Tensor LandmarkErrors(const at::Tensor& fixed, const at::Tensor& moving,
                          const std::optional<at::Tensor>& displacement,
                          c10::ArrayRef<double> spacing_mm) {
  const at::Tensor from = CheckedPoints("fixed", fixed);
  const at::Tensor to = CheckedPoints("moving", moving);
  TORCH_CHECK_VALUE(from.sizes() == to.sizes(),
                    "LandmarkErrors: wanted as many landmarks of each image, "
                    "came ",
                    fixed.sizes(), " and ", moving.sizes());
  const auto dims = static_cast<int>(from.size(1));
  TORCH_CHECK_VALUE(
      spacing_mm.size() == dims &&
          std::all_of(spacing_mm.begin(), spacing_mm.end(),
                      [](double s) { return s > 0 && std::isfinite(s); }),
      "LandmarkErrors: wanted ", dims,
      " positive numbers as the spacing, came ", spacing_mm);
  std::optional<Interpolator> mapping;
  if (displacement.has_value()) {
    geometry::CheckDisplacement("LandmarkErrors", "displacement",
                                *displacement);
    TORCH_CHECK_VALUE(
        displacement->size(0) == 1 && displacement->size(1) == dims,
        "LandmarkErrors: wanted one displacement of ", dims,
        " channels, as the landmarks, came ", displacement->sizes());
    mapping.emplace(*displacement);
  }

  at::Tensor errors = at::empty({from.size(0)}, at::kDouble);
  double* error = errors.mutable_data_ptr<double>();
  const double* x = from.const_data_ptr<double>();
  const double* y = to.const_data_ptr<double>();
  for (int64_t k = 0; k < from.size(0); ++k, x += dims, y += dims) {
    Point at = {0, 0, 0};
    std::copy_n(x, dims, at.begin());
    const Point u = mapping.has_value() ? mapping->At(at) : Point{0, 0, 0};
    double squared = 0;
    for (int axis = 0; axis < dims; ++axis) {
      const double off = (x[axis] + u[axis] - y[axis]) * spacing_mm[axis];
      squared += off * off;
    }
    TORCH_CHECK_VALUE(std::isfinite(squared),
                      "LandmarkErrors: wanted a finite displacement, came a "
                      "NaN or an infinity at landmark ",
                      k);
    error[k] = std::sqrt(squared);
  }
  return errors;
}

}  // namespace mir::metrics
