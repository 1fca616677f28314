#ifndef MIR_DATA_REGRID_H_
#define MIR_DATA_REGRID_H_

#include <ATen/core/ATen_fwd.h>

#include "absl/status/statusor.h"
#include "mir/data/grid.h"
#include "mir/data/volume.h"

namespace mir::data {

// The grid of the same voxels with axes reordered and reversed so that they
// point as nearly as possible to the right, the front and the head.
Grid RasGrid(const Grid& grid);

// The smallest grid of cubes of `spacing_mm`, its axes exactly RAS, that covers
// all voxels of `grid`, with the same centre.
//
// INVALID_ARGUMENT for a spacing that is not above 0, or so small that more
// than 2^31 voxels would be needed.
absl::StatusOr<Grid> IsotropicRasGrid(const Grid& grid, double spacing_mm);

// `volume` on `grid`: itself if it is there already, its axes reordered where
// that is enough, else resampled: images linearly, after a Gaussian blur along
// the axes that get coarser (so that fine detail does not alias); labels
// (int32) from the nearest voxel. What lies outside reads `fill`.
Volume OntoGrid(const Volume& volume, const Grid& grid, double fill = 0);

// A displacement on grid `from`, as the same displacement on grid `to`:
// resampled linearly, and its vectors turned and scaled into voxels of `to`.
// Where `to` reaches beyond `from` it is zero.
//
//   displacement  [3, D, H, W]  floating, in voxels of `from`
//   returns       [3, ...]      float32, in voxels of `to`
//
// Throws c10::ValueError if the shape is not that of `from`.
at::Tensor DisplacementOnGrid(const at::Tensor& displacement, const Grid& from,
                              const Grid& to);

// The moving volume, which may lie on any grid, read at x + displacement(x) of
// each voxel x of the fixed image's grid: one interpolation, wherever the
// volumes lie. Images linearly, labels (int32) from the nearest voxel; what
// lies outside reads `fill`.
//
//   displacement  [3, D, H, W]  floating, in voxels of `fixed`
//
// Throws c10::ValueError if the shape is not that of `fixed`.
Volume WarpOntoGrid(const Volume& moving, const at::Tensor& displacement,
                    const Grid& fixed, double fill = 0);

}  // namespace mir::data

#endif  // MIR_DATA_REGRID_H_
