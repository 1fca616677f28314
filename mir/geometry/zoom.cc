#include "mir/geometry/zoom.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_solve.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

#include "mir/precision/fp32_region.h"

namespace mir::geometry {
namespace {

// Where voxel `index` of `new_size` ones lies among `size` ones.
double Position(int64_t index, int64_t size, int64_t new_size) {
  if (new_size == 1) return 0;
  return std::min(static_cast<double>(index) * static_cast<double>(size - 1) /
                      static_cast<double>(new_size - 1),
                  static_cast<double>(size - 1));
}

// The voxel that `index` is the mirror image of.
int64_t Mirror(int64_t index, int64_t size) {
  if (size == 1) return 0;
  const int64_t period = 2 * (size - 1);
  const int64_t there = std::abs(index) % period;
  return std::min(there, period - there);
}

// [new_size, size]: the values at the new voxels from the coefficients at the
// old ones.
at::Tensor Evaluation(int64_t size, int64_t new_size, SplineOrder order) {
  at::Tensor matrix = at::zeros({new_size, size}, at::kDouble);
  auto entry = matrix.accessor<double, 2>();
  for (int64_t row = 0; row < new_size; ++row) {
    const double where = Position(row, size, new_size);
    const auto below = static_cast<int64_t>(where);
    const double t = where - static_cast<double>(below), s = 1 - t;
    if (order == SplineOrder::kLinear) {
      entry[row][below] += s;
      entry[row][Mirror(below + 1, size)] += t;
    } else {
      entry[row][Mirror(below - 1, size)] += s * s * s / 6;
      entry[row][below] += (4 - 6 * t * t + 3 * t * t * t) / 6;
      entry[row][Mirror(below + 1, size)] +=
          (4 - 6 * s * s + 3 * s * s * s) / 6;
      entry[row][Mirror(below + 2, size)] += t * t * t / 6;
    }
  }
  return matrix;
}

// [new_size, size]: the values at the new voxels from those at the old ones.
at::Tensor Interpolation(int64_t size, int64_t new_size, SplineOrder order) {
  at::Tensor matrix = Evaluation(size, new_size, order);
  if (order == SplineOrder::kLinear) return matrix;
  // The coefficients are those whose spline goes through the voxels.
  return at::linalg_solve(Evaluation(size, size, order), matrix,
                          /*left=*/false);
}

at::Tensor NearestVoxels(int64_t size, int64_t new_size) {
  std::vector<int64_t> nearest;
  for (int64_t i = 0; i < new_size; ++i) {
    nearest.push_back(
        static_cast<int64_t>(std::floor(Position(i, size, new_size) + 0.5)));
  }
  return at::tensor(nearest, at::kLong);
}

}  // namespace

at::Tensor Zoom(const at::Tensor& volume, at::IntArrayRef sizes,
                SplineOrder order) {
  TORCH_CHECK_VALUE(volume.defined(), "Zoom: the volume is undefined");
  TORCH_CHECK_VALUE(
      order == SplineOrder::kNearest || volume.is_floating_point(),
      "Zoom: wanted a floating volume, or the nearest voxel, came ",
      volume.scalar_type());
  TORCH_CHECK_VALUE(volume.numel() > 0 && sizes.size() <= volume.dim() &&
                        std::all_of(sizes.begin(), sizes.end(),
                                    [](int64_t size) { return size > 0; }),
                    "Zoom: wanted positive sizes for the last axes of a volume "
                    "with voxels, came ",
                    sizes, " for ", volume.sizes());
  const at::NoGradGuard no_grad;
  const precision::Fp32Region fp32;
  at::Tensor zoomed = volume;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t axis = volume.dim() - sizes.size() + i;
    const int64_t size = volume.size(axis);
    if (sizes[i] == size) continue;
    if (order == SplineOrder::kNearest) {
      zoomed = zoomed.index_select(
          axis, NearestVoxels(size, sizes[i]).to(volume.device()));
    } else {
      const at::Tensor matrix =
          Interpolation(size, sizes[i], order).to(volume.device());
      zoomed = at::matmul(zoomed.to(at::kDouble).movedim(axis, -1), matrix.t())
                   .movedim(-1, axis);
    }
  }
  return zoomed.to(volume.scalar_type()).contiguous();
}

std::vector<int64_t> SizesForSpacing(at::IntArrayRef sizes,
                                     c10::ArrayRef<double> from_mm,
                                     c10::ArrayRef<double> to_mm) {
  const auto positive = [](double spacing) {
    return spacing > 0 && std::isfinite(spacing);
  };
  TORCH_CHECK_VALUE(from_mm.size() == sizes.size() &&
                        to_mm.size() == sizes.size() &&
                        std::all_of(from_mm.begin(), from_mm.end(), positive) &&
                        std::all_of(to_mm.begin(), to_mm.end(), positive),
                    "SizesForSpacing: wanted ", sizes.size(),
                    " positive spacings each, came ", from_mm, " and ", to_mm);
  std::vector<int64_t> result;
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    const double size =
        static_cast<double>(sizes[axis]) * (from_mm[axis] / to_mm[axis]);
    result.push_back(std::max<int64_t>(1, std::llrint(size)));
  }
  return result;
}

}  // namespace mir::geometry
