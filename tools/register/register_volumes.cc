#include "tools/register/register_volumes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>
#include <c10/core/InferenceMode.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "mir/base/exit_status.h"
#include "mir/base/status_macros.h"
#include "mir/data/grid.h"
#include "mir/data/intensity.h"
#include "mir/data/prepare.h"
#include "mir/data/regrid.h"
#include "mir/launch/exit_codes.h"
#include "mir/training/any_size.h"

namespace mir::tools {
namespace {

// The field that, read exactly, samples where `displacement` [3, D, H, W] does
// in MIR's convention: voxel v is read at (v + u) * size / (size - 1) - 0.5.
at::Tensor ExactFromMir(const at::Tensor& displacement) {
  std::vector<at::Tensor> channels;
  for (int64_t axis = 0; axis < 3; ++axis) {
    const int64_t size = displacement.size(1 + axis);
    const at::Tensor shift = displacement.select(0, axis);
    if (size == 1) {
      channels.push_back(shift);
      continue;
    }
    std::vector<int64_t> along(3, 1);
    along[axis] = size;
    const at::Tensor voxel = at::arange(size, shift.options()).view(along);
    channels.push_back((voxel + shift) * (static_cast<double>(size) /
                                          static_cast<double>(size - 1)) -
                       0.5 - voxel);
  }
  return at::stack(channels);
}

absl::Status CheckLabels(const data::Volume& labels,
                         const data::Volume& image) {
  if (!labels.voxels.defined()) return absl::OkStatus();
  return WithExitCode(
      data::CheckLabels(image.name, image.grid, labels.name, labels.grid),
      launch::kData);
}

}  // namespace

absl::StatusOr<RegisteredVolumes> RegisterVolumes(
    const TrainedModel& trained, const VolumePair& pair,
    const RegisterOptions& options) {
  const c10::InferenceMode no_autograd;
  if (trained.model->SizeMultiple().size() != 3) {
    return WithExitCode(
        absl::InvalidArgumentError(
            "the model was trained on 2-D images; wanted one for volumes"),
        launch::kCheckpoint);
  }
  MIR_RETURN_IF_ERROR(CheckLabels(pair.fixed_labels, pair.fixed));
  MIR_RETURN_IF_ERROR(CheckLabels(pair.moving_labels, pair.moving));
  data::PrepareOptions prepare = trained.prepare;
  if (options.spacing_mm >= 0) prepare.spacing_mm = options.spacing_mm;
  absl::StatusOr<data::Grid> grid =
      data::NetworkGrid(pair.fixed.name, pair.fixed.grid, pair.moving.name,
                        pair.moving.grid, prepare);
  if (!grid.ok()) return WithExitCode(grid.status(), launch::kData);

  // As in training: intensities first, then the grid.
  const auto seen = [&](data::Volume volume) {
    volume.voxels = data::ApplyIntensity(volume.voxels, prepare.intensity);
    return data::OntoGrid(volume, *grid)
        .voxels.unsqueeze(0)
        .unsqueeze(0)
        .to(options.device);
  };
  at::Tensor displacement =
      training::RegisterInPrecision(*trained.model, seen(pair.moving),
                                    seen(pair.fixed), options.precision)
          .displacement.to(at::kCPU)
          .squeeze(0);
  if (!at::isfinite(displacement).all().item<bool>()) {
    return WithExitCode(
        absl::OutOfRangeError(absl::StrCat(
            "the model finds a field that is not finite for ", pair.moving.name,
            "; its weights or the --intensity are wrong")),
        launch::kNumeric);
  }
  if (trained.convention == geometry::WarpConvention::kMirCompatible) {
    displacement = ExactFromMir(displacement);
  }

  const data::Grid& fixed = pair.fixed.grid;
  RegisteredVolumes found;
  found.displacement =
      data::DisplacementOnGrid(displacement, *grid, fixed).contiguous();
  const auto both = [&](const data::Volume& volume, double fill,
                        at::Tensor& before, at::Tensor& after) {
    before = data::OntoGrid(volume, fixed, fill).voxels;
    after = data::WarpOntoGrid(volume, found.displacement, fixed, fill).voxels;
  };
  both(pair.moving, options.fill, found.moving, found.warped);
  if (pair.moving_labels.voxels.defined()) {
    both(pair.moving_labels, 0, found.moving_labels, found.warped_labels);
  }
  return found;
}

}  // namespace mir::tools
