#ifndef MIR_GEOMETRY_VFA_SAMPLING_H_
#define MIR_GEOMETRY_VFA_SAMPLING_H_

#include <ATen/core/ATen_fwd.h>

#include <cstdint>

// Sampling grids and neighbourhoods, as vector field attention uses them (VFA:
// Liu et al., "Vector field attention for deformable image registration", 2024;
// MIR's functions of these purposes). A grid holds where each voxel is read, in
// voxels; channel k along spatial axis k. Everything is computed in float32
// (float64 for float64), under autocast too, is differentiable once, and
// thread-safe. Throws c10::ValueError if an argument is not as said.
namespace mir::geometry {

// The grid of where voxels lie, or with `normalized` from -1 to 1 between the
// outermost voxels (MIR: identity_grid_like). `padding` adds voxels on every
// side, which lie outside.
//
//   sizes    (D, H, W) or (H, W), each at least 1; 2 if `normalized`
//   returns  [1, 3, D + 2p, H + 2p, W + 2p] or [1, 2, H + 2p, W + 2p] float32
at::Tensor IdentityGrid(at::IntArrayRef sizes, bool normalized = false,
                        int64_t padding = 0);

// What follows takes
//
//   grid  [N, 3, D, H, W] or [N, 2, H, W]  float16, bfloat16, float32 or
//                                          float64
//
// and returns float64 for float64, else float32.

// The displacement of a grid: less the identity grid (MIR: grid_to_flow).
at::Tensor GridToDisplacement(const at::Tensor& grid);

// The grid in [-1, 1], at an axis's outermost voxels (MIR: normalize_grid).
// An axis of one voxel has no such coordinate: sizes are at least 2.
at::Tensor NormalizeGrid(const at::Tensor& grid);

// The grid of a volume with `factor` times the voxels along each axis, whose
// outermost voxels lie where they did (MIR: grid_upsample). Sizes are at least
// 2.
at::Tensor UpsampleGrid(const at::Tensor& grid, int64_t factor = 2);

// Reads `source` at the grid, linearly; outside the volume the nearest edge
// (MIR: grid_sampler).
//
//   source   [N, C, D, H, W] or [N, C, H, W], of the grid's sizes; floating
//   returns  as `source`, in its dtype
at::Tensor SampleAtGrid(const at::Tensor& source, const at::Tensor& grid);

// The offsets of a voxel's neighbours and of itself, -1 to 1 along each axis,
// the last axis fastest: [3^dims, dims] float32.
at::Tensor NeighbourOffsets(int64_t dims);

// Every voxel's neighbours and itself, in that order, as a view.
//
//   features  [N, C, D + 2, H + 2, W + 2] or [N, C, H + 2, W + 2]
//   returns   [N, D, H, W, 27, C] or [N, H, W, 9, C]
at::Tensor Neighbourhoods(const at::Tensor& features);

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_VFA_SAMPLING_H_
