#include "mir/geometry/warp_grid_sample.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_unique.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/grid_sampler.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/round.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <tuple>
#include <vector>

#include "mir/precision/fp32_region.h"

namespace mir::geometry {
namespace {

// grid_sampler's numbers.
constexpr int64_t kBilinear = 0;
constexpr int64_t kNearestVoxel = 1;

int64_t Padding(Outside outside) {
  switch (outside) {
    case Outside::kZero:
    case Outside::kConstant:
      return 0;
    case Outside::kNearestEdge:
      return 1;
    case Outside::kReflect:
      return 2;
  }
  TORCH_INTERNAL_ASSERT(false, "Outside ", static_cast<int>(outside));
}

// v + u along `axis`: [N, D, H, W].
at::Tensor DisplacedVoxels(const at::Tensor& displacement, int64_t axis) {
  std::vector<int64_t> along_axis(displacement.dim() - 1, 1);
  along_axis[1 + axis] = displacement.size(2 + axis);
  return at::arange(displacement.size(2 + axis), displacement.options())
             .view(along_axis) +
         displacement.select(/*dim=*/1, axis);
}

// Whether this axis is read by MIR's formula, which has no value along one
// voxel.
bool IsMir(WarpConvention convention, int64_t size) {
  return convention == WarpConvention::kMirCompatible && size > 1;
}

}  // namespace

at::Tensor GridSampleWarp(const at::Tensor& image,
                          const at::Tensor& displacement,
                          const WarpOptions& options) {
  if (options.outside == Outside::kConstant) {
    WarpOptions zero = options;
    zero.outside = Outside::kZero;
    return GridSampleWarp(image - options.constant, displacement, zero) +
           options.constant;
  }
  const precision::Fp32Region fp32;
  // Voxel centres mirror about themselves only with align_corners=True; all
  // else has the same meaning in both, and a size of 1 is an axis in False
  // alone.
  const bool align_corners = options.convention == WarpConvention::kExact &&
                             options.outside == Outside::kReflect;
  // grid_sampler wants (w, h, d), the reverse of our axes.
  std::vector<at::Tensor> grid;
  for (int64_t axis = image.dim() - 3; axis >= 0; --axis) {
    const int64_t size = image.size(2 + axis);
    const at::Tensor voxel = DisplacedVoxels(displacement, axis);
    if (IsMir(options.convention, size)) {
      grid.push_back(2 * (voxel / (size - 1) - 0.5));
    } else if (!align_corners) {
      grid.push_back((2 * voxel + 1) / size - 1);
    } else if (size > 1) {
      grid.push_back(2 * voxel / (size - 1) - 1);
    } else {
      grid.push_back(at::zeros_like(voxel));
    }
  }
  const int64_t mode = options.interpolation == Interpolation::kNearest
                           ? kNearestVoxel
                           : kBilinear;
  return at::grid_sampler(image, at::stack(grid, /*dim=*/-1), mode,
                          Padding(options.outside), align_corners);
}

at::Tensor GatherWarpLabels(const at::Tensor& labels,
                            const at::Tensor& displacement,
                            WarpConvention convention) {
  const precision::Fp32Region fp32;
  at::Tensor source, inside;  // The voxel read, row-major; whether it exists.
  for (int64_t axis = 0; axis < labels.dim() - 2; ++axis) {
    const int64_t size = labels.size(2 + axis);
    at::Tensor position = DisplacedVoxels(displacement, axis);
    if (IsMir(convention, size)) {
      const at::Tensor normalized = 2 * (position / (size - 1) - 0.5);
      position = ((normalized + 1) * size - 1) / 2;
    }
    // Clamped, so that any finite number fits an integer.
    const at::Tensor nearest =
        at::round(at::clamp(position, -1, size)).to(at::kLong);
    const at::Tensor index = at::clamp(nearest, 0, size - 1);
    const at::Tensor here = nearest == index;
    source = source.defined() ? source * size + index : index;
    inside = inside.defined() ? inside & here : here;
  }
  const at::Tensor values =
      at::gather(labels.flatten(2), /*dim=*/2,
                 source.flatten(1).unsqueeze(1).expand(
                     {labels.size(0), labels.size(1), -1}));
  return values.view(labels.sizes())
      .masked_fill(inside.unsqueeze(1).logical_not(), 0);
}

at::Tensor GridSampleWarpLabelsLinear(const at::Tensor& labels,
                                      const at::Tensor& displacement,
                                      WarpConvention convention) {
  at::Tensor warped = at::zeros_like(labels);
  at::Tensor most = at::zeros_like(labels, displacement.options());
  // In ascending order, so that of equal weights the lowest label's stays.
  for (const at::Tensor& label : std::get<0>(at::_unique(labels)).unbind()) {
    const at::Tensor weight =
        GridSampleWarp((labels == label).to(displacement.scalar_type()),
                       displacement, {convention});
    warped = at::where(weight > most, label, warped);
    most = at::maximum(weight, most);
  }
  return warped;
}

}  // namespace mir::geometry
