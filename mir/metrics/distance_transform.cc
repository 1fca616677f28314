#include "mir/metrics/distance_transform.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace mir::metrics {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The parabolas height + squared_spacing * (x - vertex)^2 whose lower envelope
// is sought, from left to right; each is the lowest from `from` on.
struct Parabola {
  int64_t vertex;
  double height;
  double from;
};

// Replaces a line of squared distances by the smallest of them plus the squared
// distance along the line.
void TransformLine(double* values, int64_t size, int64_t stride,
                   double squared_spacing, std::vector<Parabola>& envelope) {
  envelope.clear();
  for (int64_t x = 0; x < size; ++x) {
    const double height = values[x * stride];
    if (height == kInfinity) continue;
    double from = -kInfinity;
    while (!envelope.empty()) {
      const Parabola& last = envelope.back();
      from = (height - last.height) /
                 (2 * squared_spacing * static_cast<double>(x - last.vertex)) +
             0.5 * static_cast<double>(x + last.vertex);
      if (from > last.from) break;
      envelope.pop_back();
      from = -kInfinity;
    }
    envelope.push_back({x, height, from});
  }
  if (envelope.empty()) return;
  size_t lowest = 0;
  for (int64_t x = 0; x < size; ++x) {
    while (lowest + 1 < envelope.size() &&
           envelope[lowest + 1].from < static_cast<double>(x)) {
      ++lowest;
    }
    const auto distance = static_cast<double>(x - envelope[lowest].vertex);
    values[x * stride] =
        envelope[lowest].height + squared_spacing * distance * distance;
  }
}

}  // namespace

at::Tensor DistanceTransform(const at::Tensor& mask,
                             c10::ArrayRef<double> spacing_mm) {
  TORCH_CHECK_VALUE(mask.defined(), "DistanceTransform: mask is undefined");
  TORCH_CHECK_VALUE(
      mask.scalar_type() == at::kBool && mask.dim() >= 1 && mask.dim() <= 3,
      "DistanceTransform: wanted a mask [D, H, W], [H, W] or [W] of bool, "
      "came ",
      mask.sizes(), " of ", mask.scalar_type());
  TORCH_CHECK_VALUE(
      spacing_mm.size() == mask.dim() &&
          std::all_of(spacing_mm.begin(), spacing_mm.end(),
                      [](double s) { return s > 0 && std::isfinite(s); }),
      "DistanceTransform: wanted ", mask.dim(),
      " positive numbers as the spacing, came ", spacing_mm);

  const at::Tensor set = mask.to(at::kCPU).contiguous();
  const int64_t voxels = set.numel();
  at::Tensor distances = at::empty(set.sizes(), at::kDouble);
  double* values = distances.mutable_data_ptr<double>();
  const bool* is_set = set.const_data_ptr<bool>();
  for (int64_t i = 0; i < voxels; ++i) values[i] = is_set[i] ? 0 : kInfinity;

  for (int64_t axis = 0; axis < set.dim() && voxels > 0; ++axis) {
    const int64_t size = set.size(axis);
    const int64_t stride = set.stride(axis);
    const double squared_spacing = spacing_mm[axis] * spacing_mm[axis];
    at::parallel_for(0, voxels / size, std::max<int64_t>(1, 8192 / size),
                     [&](int64_t begin, int64_t end) {
                       std::vector<Parabola> envelope;
                       envelope.reserve(size);
                       for (int64_t line = begin; line < end; ++line) {
                         TransformLine(values + line / stride * stride * size +
                                           line % stride,
                                       size, stride, squared_spacing, envelope);
                       }
                     });
  }
  return distances.sqrt_();
}

}  // namespace mir::metrics
