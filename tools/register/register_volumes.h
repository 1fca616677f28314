#ifndef MIR_TOOLS_REGISTER_REGISTER_VOLUMES_H_
#define MIR_TOOLS_REGISTER_REGISTER_VOLUMES_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "absl/status/statusor.h"
#include "mir/data/volume.h"
#include "mir/precision/precision.h"
#include "tools/register/trained_model.h"

namespace mir::tools {

// Two volumes to register; labels have null voxels where there are none.
struct VolumePair {
  data::Volume fixed;
  data::Volume moving;
  data::Volume fixed_labels;
  data::Volume moving_labels;
};

// What was found, all on the fixed volume's grid.
struct RegisteredVolumes {
  // [3, D, H, W] float32 in voxels: warped(x) = moving(x + displacement(x)),
  // with a zero field as the identity.
  at::Tensor displacement;
  // [D, H, W]: the moving image before, and warped; its own intensities.
  at::Tensor moving;
  at::Tensor warped;
  // [D, H, W] int32: likewise of its labels; undefined without.
  at::Tensor moving_labels;
  at::Tensor warped_labels;
};

struct RegisterOptions {
  precision::Precision precision = precision::Precision::kFloat32;
  c10::Device device = c10::kCPU;
  // Voxel size of the network's grid; negative: as the model was trained.
  double spacing_mm = -1;
  // What the warped image reads outside the moving one (-1024 for CT).
  double fill = 0;
};

// Registers `pair.moving` onto `pair.fixed`. The network sees both on one grid:
// the fixed volume's own, or an isotropic RAS grid of the spacing it was
// trained on; the field is brought to the fixed volume's grid.
//
// Errors carry their exit codes: INVALID_ARGUMENT where the grids differ and
// there is no spacing (naming both), labels do not lie on their image's grid,
// or the model is a 2-D one; OUT_OF_RANGE where it finds a field that is not
// finite.
absl::StatusOr<RegisteredVolumes> RegisterVolumes(
    const TrainedModel& trained, const VolumePair& pair,
    const RegisterOptions& options);

}  // namespace mir::tools

#endif  // MIR_TOOLS_REGISTER_REGISTER_VOLUMES_H_
