#include "mir/data/random_deformation.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <vector>

#include "mir/geometry/resize.h"
#include "mir/geometry/vec_int.h"

namespace mir::data {
namespace {

// 0 on the outermost voxels, 1 from `length` voxels inwards, smooth between.
at::Tensor BorderTaper(int64_t size, double length) {
  at::Tensor taper = at::empty({size}, at::kFloat);
  float* const value = taper.mutable_data_ptr<float>();
  for (int64_t x = 0; x < size; ++x) {
    const double t = std::min(1.0, std::min(x, size - 1 - x) / length);
    value[x] = static_cast<float>(t * t * (3 - 2 * t));
  }
  return taper;
}

}  // namespace

at::Tensor RandomDiffeomorphism(at::IntArrayRef size,
                                const DeformationOptions& options,
                                RandomStream& random) {
  std::vector<int64_t> half_size;
  for (const int64_t along : size) half_size.push_back((along + 1) / 2);
  const double smoothness = std::max(1.0, options.smoothness_voxels / 2);
  std::vector<at::Tensor> components;
  for (size_t axis = 0; axis < size.size(); ++axis) {
    components.push_back(SmoothRandomField(half_size, smoothness, random));
  }
  at::Tensor velocity =
      at::stack(components).mul_(options.amplitude_voxels / 2);
  for (size_t axis = 0; axis < size.size(); ++axis) {
    if (half_size[axis] < 3) {  // Flat: nothing moves along it.
      velocity.select(0, static_cast<int64_t>(axis)).zero_();
      continue;
    }
    std::vector<int64_t> along(velocity.dim(), 1);
    along[1 + axis] = half_size[axis];
    velocity.mul_(BorderTaper(half_size[axis], smoothness / 3).view(along));
  }
  // Six halvings leave steps of a tenth of a voxel.
  const at::Tensor half = geometry::VecInt(velocity.unsqueeze(0), /*steps=*/6,
                                           geometry::WarpConvention::kExact);
  return geometry::ResizeDisplacement(half, size);
}

}  // namespace mir::data
