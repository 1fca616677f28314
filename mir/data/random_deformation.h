#ifndef MIR_DATA_RANDOM_DEFORMATION_H_
#define MIR_DATA_RANDOM_DEFORMATION_H_

#include <ATen/core/Tensor.h>

#include "mir/data/random.h"

namespace mir::data {

struct DeformationOptions {
  // Standard deviation of each component of the velocity, away from the
  // border. The largest displacement is about three times that.
  double amplitude_voxels = 2;
  // Scale of its changes. At six amplitudes or more nothing folds; with less,
  // what is exact between voxels may fold on them.
  double smoothness_voxels = 12;
};

// A random smooth deformation of a box onto itself: a random smooth velocity
// that fades towards the border, integrated by scaling and squaring at half the
// resolution.
//
//   size     two or three spatial sizes
//   returns  [1, nd, size...]  float32 displacement in voxels, channel k along
//                              spatial axis k, for geometry::Warp (kExact)
at::Tensor RandomDiffeomorphism(at::IntArrayRef size,
                                const DeformationOptions& options,
                                RandomStream& random);

}  // namespace mir::data

#endif  // MIR_DATA_RANDOM_DEFORMATION_H_
