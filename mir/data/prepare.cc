#include "mir/data/prepare.h"

#include <ATen/core/Tensor.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "mir/base/catch_torch.h"
#include "mir/base/status_macros.h"
#include "mir/data/nifti.h"
#include "mir/data/regrid.h"

namespace mir::data {

absl::StatusOr<Grid> NetworkGrid(const std::string& fixed_name,
                                 const Grid& fixed,
                                 const std::string& moving_name,
                                 const Grid& moving,
                                 const PrepareOptions& options) {
  if (options.spacing_mm != 0) {
    return IsotropicRasGrid(fixed, options.spacing_mm);
  }
  if (options.reorient && SameGrid(RasGrid(fixed), RasGrid(moving))) {
    return RasGrid(fixed);
  }
  if (SameGrid(fixed, moving)) return fixed;
  return absl::InvalidArgumentError(absl::StrCat(
      "the images of a pair lie on different grids: ", fixed_name, " has ",
      Describe(fixed), "; ", moving_name, " has ", Describe(moving),
      "; resample both with a spacing in mm (--spacing)"));
}

absl::StatusOr<Volume> ReadNormalized(const std::string& path,
                                      const Intensity& intensity) {
  MIR_ASSIGN_OR_RETURN(Volume volume, ReadImage(path));
  MIR_RETURN_IF_ERROR(CatchTorch([&]() -> absl::Status {
    if (intensity.kind == Intensity::Kind::kWindow) {
      const double low = volume.voxels.min().item<double>();
      const double high = volume.voxels.max().item<double>();
      if (high <= intensity.low || low >= intensity.high) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "%s: all its values, %.6g to %.6g, lie outside %s; choose another "
            "window, or see whether the file's scl_slope and scl_inter are "
            "right",
            path, low, high, intensity.ToString()));
      }
    }
    volume.voxels = ApplyIntensity(volume.voxels, intensity);
    return absl::OkStatus();
  }));
  return volume;
}

absl::Status CheckLabels(const std::string& image_name, const Grid& image,
                         const std::string& labels_name, const Grid& labels) {
  if (image.size != labels.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("image and labels differ in shape: ", image_name, " is ",
                     absl::StrJoin(image.size, "x"), ", ", labels_name, " is ",
                     absl::StrJoin(labels.size, "x")));
  }
  if (!SameGrid(image, labels)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "image and labels differ in their place in space: ", image_name,
        " has ", Describe(image), "; ", labels_name, " has ", Describe(labels),
        "; give the labels the image's header"));
  }
  return absl::OkStatus();
}

absl::StatusOr<PairVolumes> PreparePair(const PairVolumes& pair,
                                        const PrepareOptions& options) {
  MIR_ASSIGN_OR_RETURN(
      const Grid grid,
      NetworkGrid(pair.fixed.name, pair.fixed.grid, pair.moving.name,
                  pair.moving.grid, options));
  PairVolumes prepared;
  const auto bring_labels = [&](const Volume& image,
                                const absl::optional<Volume>& labels,
                                absl::optional<Volume>& result) {
    if (!labels.has_value()) return absl::OkStatus();
    MIR_RETURN_IF_ERROR(
        CheckLabels(image.name, image.grid, labels->name, labels->grid));
    result = OntoGrid(*labels, grid);
    return absl::OkStatus();
  };
  MIR_RETURN_IF_ERROR(CatchTorch([&]() -> absl::Status {
    MIR_RETURN_IF_ERROR(
        bring_labels(pair.fixed, pair.fixed_labels, prepared.fixed_labels));
    MIR_RETURN_IF_ERROR(
        bring_labels(pair.moving, pair.moving_labels, prepared.moving_labels));
    prepared.fixed = OntoGrid(pair.fixed, grid);
    prepared.moving = OntoGrid(pair.moving, grid);
    return absl::OkStatus();
  }));
  return prepared;
}

Pair PairOf(const PairVolumes& prepared) {
  Pair pair;
  pair.name = absl::StrCat(prepared.moving.name, " onto ", prepared.fixed.name);
  pair.fixed = prepared.fixed.voxels.unsqueeze(0);
  pair.moving = prepared.moving.voxels.unsqueeze(0);
  if (prepared.fixed_labels.has_value() && prepared.moving_labels.has_value()) {
    pair.fixed_labels = prepared.fixed_labels->voxels.unsqueeze(0);
    pair.moving_labels = prepared.moving_labels->voxels.unsqueeze(0);
  }
  return pair;
}

}  // namespace mir::data
