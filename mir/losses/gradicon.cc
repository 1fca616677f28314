#include "mir/losses/gradicon.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/grid_sampler.h>
#include <ATen/ops/meshgrid.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/stack.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "mir/geometry/warp.h"
#include "mir/losses/arguments.h"
#include "mir/precision/fp32_region.h"

namespace mir::losses {

namespace {

void CheckNorm(const char* loss, GradientNorm norm) {
  TORCH_CHECK_VALUE(norm != GradientNorm::kIsotropic, loss,
                    ": wanted the l1 or l2 norm, got the isotropic one");
}

void CheckPair(const char* loss, const at::Tensor& forward,
               const at::Tensor& backward, bool check_finite) {
  CheckDisplacement(loss, forward);
  CheckDisplacement(loss, backward);
  TORCH_CHECK_VALUE(forward.sizes() == backward.sizes(), loss,
                    ": wanted two displacements of one shape, got ",
                    forward.sizes(), " and ", backward.sizes());
  CheckFiniteIf(check_finite, loss, "forward", forward);
  CheckFiniteIf(check_finite, loss, "backward", backward);
}

at::Tensor Composed(const at::Tensor& forward, const at::Tensor& backward,
                    geometry::WarpConvention convention) {
  return backward +
         geometry::Warp(forward, backward, {.convention = convention});
}

// The displacement at points [P, axes] in voxels, in the order of its axes:
// [N, axes, P].
at::Tensor SampleAt(const at::Tensor& displacement, at::Tensor points) {
  const int64_t axes = displacement.dim() - 2;
  std::vector<at::Tensor> normalized;  // Last axis first, as grid_sample does.
  for (int64_t axis = axes - 1; axis >= 0; --axis) {
    const int64_t size = displacement.size(2 + axis);
    const at::Tensor voxel = points.select(1, axis);
    normalized.push_back(size > 1 ? voxel * (2.0 / (size - 1)) - 1 : voxel * 0);
  }
  std::vector<int64_t> shape(axes, 1);
  shape[axes - 1] = points.size(0);
  shape.insert(shape.begin(), 1);
  shape.push_back(axes);
  at::Tensor grid = at::stack(normalized, -1).view(shape);
  std::vector<int64_t> batch = shape;
  batch[0] = displacement.size(0);
  grid = grid.expand(batch);
  return at::grid_sampler(displacement, grid, /*bilinear*/ 0, /*border*/ 1,
                          /*align_corners=*/true)
      .flatten(2);
}

}  // namespace

GradIcon::GradIcon(const GradIconOptions& options) : options_(options) {
  CheckNorm("GradIcon", options.norm);
}

at::Tensor GradIcon::operator()(const at::Tensor& forward,
                                const at::Tensor& backward) const {
  CheckPair("GradIcon", forward, backward, options_.check_finite);
  const precision::Fp32Region region;
  const at::Tensor f = precision::ToComputeType(forward);
  const at::Tensor b = precision::ToComputeType(backward);
  GradientPenaltyOptions options;
  options.norm = options_.norm;
  const GradientPenalty penalty(options);
  const at::Tensor loss = penalty(Composed(f, b, options_.convention));
  if (!options_.both_directions) return loss;
  return 0.5 * (loss + penalty(Composed(b, f, options_.convention)));
}

GradIconExact::GradIconExact(const GradIconOptions& options, double share)
    : options_(options), share_(share) {
  CheckNorm("GradIconExact", options.norm);
  TORCH_CHECK_VALUE(share > 0 && share <= 1,
                    "GradIconExact: wanted a share in (0, 1], got ", share);
}

at::Tensor GradIconExact::OneWay(const at::Tensor& forward,
                                 const at::Tensor& backward) const {
  const at::Tensor composed = Composed(forward, backward, options_.convention);
  const bool mir =
      options_.convention == geometry::WarpConvention::kMirCompatible;
  const int64_t axes = composed.dim() - 2;
  // Float64, since the differences are of nearby points.
  const at::Tensor displacement = composed.to(at::kDouble);
  std::vector<at::Tensor> coordinates;
  int64_t voxels = 1;
  for (int64_t axis = 0; axis < axes; ++axis) {
    coordinates.push_back(
        at::arange(composed.size(2 + axis), displacement.options()));
    voxels *= composed.size(2 + axis);
  }
  at::Tensor points;
  {
    std::vector<at::Tensor> grid = at::meshgrid(coordinates, "ij");
    for (at::Tensor& one : grid) one = one.flatten();
    points = at::stack(grid, 1);
  }
  if (share_ < 1) {
    const int64_t count = std::max<int64_t>(1, voxels * share_);
    points = points.index_select(0, at::randperm(voxels, at::kLong)
                                        .narrow(0, 0, count)
                                        .to(points.device()));
  }
  const auto read = [&](const at::Tensor& at_points) {
    if (!mir) return SampleAt(displacement, at_points);
    std::vector<at::Tensor> magnified;
    for (int64_t axis = 0; axis < axes; ++axis) {
      const at::Tensor one = at_points.select(1, axis);
      const int64_t size = composed.size(2 + axis);
      // Points beyond the border read it.
      magnified.push_back(size == 1
                              ? one
                              : (one * (double(size) / (size - 1)) - 0.5)
                                    .clamp(0, static_cast<double>(size - 1)));
    }
    return SampleAt(displacement, at::stack(magnified, 1));
  };

  const at::Tensor here = read(points);
  at::Tensor sum = ZeroOf(displacement);
  for (int64_t axis = 0; axis < axes; ++axis) {
    if (composed.size(2 + axis) == 1) continue;
    const int64_t extent_axis = mir ? axes - 1 - axis : axis;
    const double step =
        1e-3 * std::max<int64_t>(1, composed.size(2 + extent_axis) - 1);
    at::Tensor shifted = points.clone();
    shifted.select(1, axis).add_(step);
    const at::Tensor difference = (read(shifted) - here) / step;
    const at::Tensor entries = options_.norm == GradientNorm::kL2
                                   ? difference.square()
                                   : difference.abs();
    sum = sum + entries.sum(1).mean();
  }
  return sum.to(composed.scalar_type());
}

at::Tensor GradIconExact::operator()(const at::Tensor& forward,
                                     const at::Tensor& backward) const {
  CheckPair("GradIconExact", forward, backward, options_.check_finite);
  const precision::Fp32Region region;
  const at::Tensor f = precision::ToComputeType(forward);
  const at::Tensor b = precision::ToComputeType(backward);
  const at::Tensor loss = OneWay(f, b);
  if (!options_.both_directions) return loss;
  return 0.5 * (loss + OneWay(b, f));
}

}  // namespace mir::losses
