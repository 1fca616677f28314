#include "mir/data/atlas_source.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mir/base/catch_torch.h"
#include "mir/base/status_macros.h"
#include "mir/data/nifti.h"
#include "mir/data/random.h"
#include "mir/data/random_deformation.h"
#include "mir/data/regrid.h"
#include "mir/geometry/warp.h"

namespace mir::data {
namespace {

constexpr uint64_t kTrainingStream = 11;
constexpr uint64_t kValidationStream = 12;
constexpr double kMarginMm = 8;

struct Box {
  std::array<int64_t, 3> first;
  std::array<int64_t, 3> size;
};

// The box of what is above 0, and `kMarginMm` around it; all where nothing is.
Box BoxOf(const Volume& volume) {
  Box box = {{0, 0, 0}, volume.grid.size};
  const at::Tensor inside = volume.voxels.gt(0);
  const auto spacing = SpacingMm(volume.grid);
  for (int64_t axis = 0; axis < 3; ++axis) {
    const at::Tensor along = inside.any((axis + 1) % 3, /*keepdim=*/true)
                                 .any((axis + 2) % 3, /*keepdim=*/true)
                                 .flatten()
                                 .nonzero();
    if (along.numel() == 0) return box;
    const int64_t margin =
        static_cast<int64_t>(std::ceil(kMarginMm / spacing[axis]));
    const int64_t first =
        std::max<int64_t>(0, along.min().item<int64_t>() - margin);
    const int64_t last = std::min(volume.grid.size[axis] - 1,
                                  along.max().item<int64_t>() + margin);
    box.first[axis] = first;
    box.size[axis] = last - first + 1;
  }
  return box;
}

void CutTo(const Box& box, Volume& volume) {
  if (box.size == volume.grid.size) return;
  for (int64_t axis = 0; axis < 3; ++axis) {
    volume.voxels = volume.voxels.narrow(axis, box.first[axis], box.size[axis]);
  }
  volume.voxels = volume.voxels.contiguous();
  const auto origin =
      Apply(volume.grid.to_world, {static_cast<double>(box.first[0]),
                                   static_cast<double>(box.first[1]),
                                   static_cast<double>(box.first[2])});
  for (int row = 0; row < 3; ++row) volume.grid.to_world[row][3] = origin[row];
  volume.grid.size = box.size;
  volume.header = nullptr;
}

absl::Status CheckCount(int64_t count) {
  if (count >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("atlas: wanted at least 1 pair, got ", count));
}

}  // namespace

absl::StatusOr<std::unique_ptr<AtlasSource>> AtlasSource::Make(
    const AtlasOptions& options) {
  MIR_RETURN_IF_ERROR(CheckCount(options.count));
  if (!(options.deformation >= 0 && options.deformation <= 0.2)) {
    return absl::InvalidArgumentError(
        absl::StrCat("atlas: wanted a deformation of 0 to 0.2 of the size, "
                     "got ",
                     options.deformation));
  }
  PairVolumes pair;
  MIR_ASSIGN_OR_RETURN(
      pair.fixed, ReadNormalized(options.image, options.prepare.intensity));
  if (!options.labels.empty()) {
    MIR_ASSIGN_OR_RETURN(pair.fixed_labels, ReadLabels(options.labels));
  }
  pair.moving = pair.fixed;
  MIR_ASSIGN_OR_RETURN(const PairVolumes prepared,
                       PreparePair(pair, options.prepare));

  std::unique_ptr<AtlasSource> source(new AtlasSource(options));
  source->image_ = prepared.fixed;
  if (prepared.fixed_labels.has_value()) {
    source->labels_ = *prepared.fixed_labels;
  }
  MIR_RETURN_IF_ERROR(CatchTorch([&] {
    const bool labelled = source->labels_.voxels.defined();
    const Box box = BoxOf(labelled ? source->labels_ : source->image_);
    CutTo(box, source->image_);
    if (labelled) CutTo(box, source->labels_);
    return absl::OkStatus();
  }));
  return source;
}

absl::StatusOr<std::unique_ptr<AtlasSource>> AtlasSource::Validation(
    int64_t count) const {
  MIR_RETURN_IF_ERROR(CheckCount(count));
  std::unique_ptr<AtlasSource> source(new AtlasSource(options_));
  source->options_.count = count;
  source->validation_ = true;
  source->image_ = image_;
  source->labels_ = labels_;
  return source;
}

absl::StatusOr<Pair> AtlasSource::Get(int64_t epoch, int64_t index) const {
  if (epoch < 0 || index < 0 || index >= options_.count) {
    return absl::OutOfRangeError(absl::StrCat("atlas: no pair ", index,
                                              " in epoch ", epoch,
                                              "; there are ", options_.count));
  }
  const c10::NoGradGuard no_grad;
  RandomStream random({options_.seed,
                       validation_ ? kValidationStream : kTrainingStream,
                       validation_ ? 0 : static_cast<uint64_t>(epoch),
                       static_cast<uint64_t>(index)});
  const auto& size = image_.grid.size;
  const double scale = (size[0] + size[1] + size[2]) / 3.0;
  DeformationOptions deformation;
  deformation.amplitude_voxels = options_.deformation * scale;
  deformation.smoothness_voxels = scale / 4;

  Pair pair;
  const auto deform = [&](at::Tensor& image, at::Tensor& labels) {
    const at::Tensor displacement =
        RandomDiffeomorphism(size, deformation, random);
    const auto batched = [](const at::Tensor& voxels) {
      return voxels.unsqueeze(0).unsqueeze(0);
    };
    image = geometry::Warp(batched(image_.voxels), displacement).squeeze(0);
    if (labels_.voxels.defined()) {
      labels = geometry::WarpLabels(batched(labels_.voxels), displacement)
                   .squeeze(0);
    }
    return absl::OkStatus();
  };
  MIR_RETURN_IF_ERROR(
      CatchTorch([&] { return deform(pair.fixed, pair.fixed_labels); }));
  MIR_RETURN_IF_ERROR(
      CatchTorch([&] { return deform(pair.moving, pair.moving_labels); }));
  pair.name =
      validation_
          ? absl::StrCat(options_.image, ", validation pair ", index)
          : absl::StrCat(options_.image, ", pair ", index, " of epoch ", epoch);
  return pair;
}

}  // namespace mir::data
