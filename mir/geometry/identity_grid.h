#ifndef MIR_GEOMETRY_IDENTITY_GRID_H_
#define MIR_GEOMETRY_IDENTITY_GRID_H_

#include <ATen/core/ATen_fwd.h>
#include <c10/util/ArrayRef.h>

namespace mir::geometry {

// The voxels' own coordinates: channel k at voxel x is x[k], so that the sum
// with a displacement says where each voxel goes. MIR's get_identity_grid.
//
//   sizes    (D, H, W) or (H, W)
//   options  dtype and device of the result; a floating dtype that tells the
//            coordinates apart (bfloat16 does up to 256 only)
//   returns  [3, D, H, W] or [2, H, W]
//
// Thread-safe. Throws c10::ValueError if an argument is not as above.
at::Tensor IdentityGrid(at::IntArrayRef sizes,
                        const at::TensorOptions& options);

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_IDENTITY_GRID_H_
