#include "mir/metrics/folding.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "mir/geometry/displacement_check.h"
#include "mir/geometry/finite_check.h"
#include "mir/geometry/jacobian.h"

namespace mir::metrics {
namespace {

// Calls `body(determinants, begin, end)` with those of planes [begin, end) of
// sample after sample, contiguous and in float64 on the CPU: all of them would
// take several times the field.
template <typename Body>
void ForEachSlab(const char* function, const at::Tensor& displacement,
                 const Body& body) {
  constexpr int64_t kVoxelsPerSlab = 1 << 18;
  const at::NoGradGuard no_grad;
  const int64_t planes = displacement.size(2);
  const int64_t voxels = displacement[0][0].numel();
  const int64_t thickness =
      std::max<int64_t>(1, kVoxelsPerSlab * planes / voxels);
  for (int64_t n = 0; n < displacement.size(0); ++n) {
    const at::Tensor field = displacement.narrow(/*dim=*/0, n, 1);
    for (int64_t begin = 0; begin < planes; begin += thickness) {
      const int64_t end = std::min(begin + thickness, planes);
      // Central differences need a neighbour on both sides.
      const int64_t first = std::max<int64_t>(begin - 1, 0);
      const int64_t last = std::min(end + 1, planes);
      const at::Tensor slab =
          field.narrow(/*dim=*/2, first, last - first).to(at::kDouble);
      // A sum is finite where its terms are.
      if (!std::isfinite(slab.sum().item<double>())) {
        geometry::CheckFinite(function, "displacement", displacement);
      }
      body(geometry::JacobianDeterminant(slab)
               .narrow(/*dim=*/1, begin - first, end - begin)
               .to(at::kCPU)
               .contiguous(),
           begin, end);
    }
  }
}

void CheckField(const char* function, const at::Tensor& displacement) {
  geometry::CheckDisplacement(function, "displacement", displacement);
  TORCH_CHECK_VALUE(displacement.size(0) > 0, function,
                    ": wanted at least one displacement, came ",
                    displacement.sizes());
}

}  // namespace

double FoldedShare(const at::Tensor& displacement) {
  CheckField("FoldedShare", displacement);
  int64_t folded = 0, voxels = 0;
  ForEachSlab("FoldedShare", displacement,
              [&](const at::Tensor& determinant, int64_t, int64_t) {
                const double* values = determinant.const_data_ptr<double>();
                folded += std::count_if(values, values + determinant.numel(),
                                        [](double j) { return j <= 0; });
                voxels += determinant.numel();
              });
  return static_cast<double>(folded) / static_cast<double>(voxels);
}

double SdLogJacobian(const at::Tensor& displacement) {
  constexpr int64_t kCut = 2;
  CheckField("SdLogJacobian", displacement);
  for (int64_t axis = 2; axis < displacement.dim(); ++axis) {
    TORCH_CHECK_VALUE(displacement.size(axis) > 2 * kCut,
                      "SdLogJacobian: wanted spatial sizes of at least 5, "
                      "came ",
                      displacement.sizes());
  }
  // Deviations from the logarithm of J = 1, such that squares do not cancel.
  const double centre = std::log(4.0);
  double sum = 0, sum_of_squares = 0;
  int64_t voxels = 0;
  ForEachSlab("SdLogJacobian", displacement,
              [&](at::Tensor determinant, int64_t begin, int64_t end) {
                const int64_t first = std::max(begin, kCut);
                const int64_t last = std::min(end, displacement.size(2) - kCut);
                if (first >= last) return;
                determinant =
                    determinant.narrow(/*dim=*/1, first - begin, last - first);
                for (int64_t axis = 2; axis < determinant.dim(); ++axis) {
                  determinant = determinant.narrow(
                      axis, kCut, determinant.size(axis) - 2 * kCut);
                }
                const at::Tensor logarithm =
                    (determinant + 3).clamp(1e-9, 1e9).log() - centre;
                sum += logarithm.sum().item<double>();
                sum_of_squares += logarithm.square().sum().item<double>();
                voxels += logarithm.numel();
              });
  const auto count = static_cast<double>(voxels);
  const double mean = sum / count;
  return std::sqrt(std::max(sum_of_squares / count - mean * mean, 0.0));
}

}  // namespace mir::metrics
