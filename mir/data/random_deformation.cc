#include "mir/data/random_deformation.h"

#include <ATen/ops/stack.h>

#include <algorithm>
#include <vector>

#include "mir/geometry/resize.h"
#include "mir/geometry/vec_int.h"

namespace mir::data {

at::Tensor RandomDiffeomorphism(at::IntArrayRef size,
                                const DeformationOptions& options,
                                RandomStream& random) {
  std::vector<int64_t> half_size;
  for (const int64_t along : size) half_size.push_back((along + 1) / 2);
  std::vector<at::Tensor> velocity;
  for (size_t axis = 0; axis < size.size(); ++axis) {
    velocity.push_back(SmoothRandomField(
        half_size, std::max(1.0, options.smoothness_voxels / 2), random));
  }
  // Six halvings leave steps of a tenth of a voxel.
  const at::Tensor half = geometry::VecInt(
      at::stack(velocity).mul_(options.amplitude_voxels / 2).unsqueeze(0),
      /*steps=*/6, geometry::WarpConvention::kExact);
  return geometry::ResizeDisplacement(half, size);
}

}  // namespace mir::data
