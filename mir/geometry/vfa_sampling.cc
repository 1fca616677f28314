#include "mir/geometry/vfa_sampling.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/meshgrid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_trilinear3d.h>
#include <c10/util/Exception.h>

#include <vector>

#include "mir/geometry/displacement_check.h"
#include "mir/geometry/warp.h"
#include "mir/precision/fp32_region.h"

namespace mir::geometry {
namespace {

constexpr int64_t kNeighbourhood = 3;

// A value per axis, to act on the channels of a grid of `dims` axes.
at::Tensor PerAxis(const std::vector<double>& values, const at::Tensor& grid) {
  std::vector<int64_t> shape(grid.dim(), 1);
  shape[1] = static_cast<int64_t>(values.size());
  return at::tensor(at::ArrayRef<double>(values), grid.options()).view(shape);
}

void CheckSizesAtLeastTwo(const char* function, at::IntArrayRef sizes) {
  for (const int64_t size : sizes) {
    TORCH_CHECK_VALUE(size >= 2, function,
                      ": wanted at least 2 voxels along each axis, came ",
                      sizes);
  }
}

void CheckFeatures(const char* function, const char* what,
                   const at::Tensor& features) {
  TORCH_CHECK_VALUE(features.defined(), function, ": ", what, " is undefined");
  TORCH_CHECK_VALUE((features.dim() == 4 || features.dim() == 5) &&
                        at::isFloatingType(features.scalar_type()),
                    function, ": wanted a floating ", what,
                    " [N, C, D, H, W] or [N, C, H, W], came ",
                    features.scalar_type(), " ", features.sizes());
}

}  // namespace

at::Tensor IdentityGrid(at::IntArrayRef sizes, bool normalized,
                        int64_t padding) {
  TORCH_CHECK_VALUE((sizes.size() == 2 || sizes.size() == 3) && padding >= 0,
                    "IdentityGrid: wanted (D, H, W) or (H, W) and a padding of "
                    "0 or more, came ",
                    sizes, " and ", padding);
  if (normalized) CheckSizesAtLeastTwo("IdentityGrid", sizes);
  std::vector<at::Tensor> axes;
  for (const int64_t size : sizes) {
    TORCH_CHECK_VALUE(size >= 1, "IdentityGrid: wanted voxels, came ", sizes);
    const at::Tensor axis = at::arange(-padding, size + padding, at::kFloat);
    axes.push_back(normalized ? axis / (size - 1) * 2 - 1 : axis);
  }
  return at::stack(at::meshgrid(axes, "ij")).unsqueeze(0);
}

at::Tensor GridToDisplacement(const at::Tensor& grid) {
  CheckDisplacement("GridToDisplacement", "grid", grid);
  return precision::ToComputeType(grid) -
         IdentityGrid(grid.sizes().slice(2)).to(grid.device());
}

at::Tensor NormalizeGrid(const at::Tensor& grid) {
  CheckDisplacement("NormalizeGrid", "grid", grid);
  CheckSizesAtLeastTwo("NormalizeGrid", grid.sizes().slice(2));
  const at::Tensor positions = precision::ToComputeType(grid);
  std::vector<double> last;
  for (const int64_t size : grid.sizes().slice(2)) last.push_back(size - 1);
  return positions / PerAxis(last, positions) * 2 - 1;
}

at::Tensor UpsampleGrid(const at::Tensor& grid, int64_t factor) {
  CheckDisplacement("UpsampleGrid", "grid", grid);
  CheckSizesAtLeastTwo("UpsampleGrid", grid.sizes().slice(2));
  TORCH_CHECK_VALUE(factor >= 1,
                    "UpsampleGrid: wanted a factor of at least 1, came ",
                    factor);
  const precision::Fp32Region fp32;
  const at::Tensor positions = precision::ToComputeType(grid);
  std::vector<double> scales;
  std::vector<int64_t> sizes;
  for (const int64_t size : grid.sizes().slice(2)) {
    sizes.push_back(size * factor);
    scales.push_back(static_cast<double>(sizes.back() - 1) / (size - 1));
  }
  const at::Tensor scaled = positions * PerAxis(scales, positions);
  return grid.dim() == 5
             ? at::upsample_trilinear3d(scaled, sizes, /*align_corners=*/true)
             : at::upsample_bilinear2d(scaled, sizes, /*align_corners=*/true);
}

at::Tensor SampleAtGrid(const at::Tensor& source, const at::Tensor& grid) {
  return Warp(
      source, GridToDisplacement(grid),
      {WarpConvention::kExact, Interpolation::kLinear, Outside::kNearestEdge});
}

at::Tensor NeighbourOffsets(int64_t dims) {
  const std::vector<int64_t> sizes(dims, kNeighbourhood);
  return IdentityGrid(sizes, /*normalized=*/true)
      .flatten(2)
      .squeeze(0)
      .t()
      .contiguous();
}

at::Tensor Neighbourhoods(const at::Tensor& features) {
  CheckFeatures("Neighbourhoods", "features", features);
  at::Tensor patches = features;
  std::vector<int64_t> order = {0};
  for (int64_t axis = 2; axis < features.dim(); ++axis) {
    TORCH_CHECK_VALUE(features.size(axis) >= kNeighbourhood,
                      "Neighbourhoods: wanted features with a margin of one "
                      "voxel on every side, came ",
                      features.sizes());
    patches = patches.unfold(axis, kNeighbourhood, /*step=*/1);
    order.push_back(axis);
  }
  order.insert(order.end(), {features.dim(), 1});
  return patches.flatten(features.dim()).permute(order);
}

}  // namespace mir::geometry
