#include "mir/data/list_source.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mir/base/catch_torch.h"
#include "mir/base/status_macros.h"
#include "mir/data/nifti.h"
#include "mir/data/random.h"
#include "mir/data/regrid.h"

namespace mir::data {
namespace {

constexpr uint64_t kPartnerStream = 21;

// What tells a file on one grid from the same on another.
std::string CacheName(const std::string& path, const Grid& grid) {
  std::string name = path;
  name += '\0';
  name.append(reinterpret_cast<const char*>(&grid.size), sizeof(grid.size));
  name.append(reinterpret_cast<const char*>(&grid.to_world),
              sizeof(grid.to_world));
  return name;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ListSource>> ListSource::Training(
    const DatasetList& list, const ListSourceOptions& options) {
  if (list.training_images.size() < 2 && list.training_pairs.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(list.path, ": it lists nothing to train on"));
  }
  std::unique_ptr<ListSource> source(new ListSource(options));
  source->images_ = list.training_images;
  source->pairs_ = list.training_pairs;
  return source;
}

absl::StatusOr<std::unique_ptr<ListSource>> ListSource::Validation(
    const DatasetList& list, const ListSourceOptions& options) {
  if (list.validation_pairs.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(list.path, ": it lists no validation pairs"));
  }
  std::unique_ptr<ListSource> source(new ListSource(options));
  source->pairs_ = list.validation_pairs;
  return source;
}

int64_t ListSource::size() const {
  return static_cast<int64_t>(images_.empty() ? pairs_.size() : images_.size());
}

ListedPair ListSource::PairAt(int64_t epoch, int64_t index) const {
  if (images_.empty()) return pairs_[index];
  RandomStream random({options_.seed, kPartnerStream,
                       static_cast<uint64_t>(epoch),
                       static_cast<uint64_t>(index)});
  // One of the others, each as likely.
  const int64_t partner = (index + 1 + random.Below(size() - 1)) % size();
  return {images_[index], images_[partner]};
}

absl::StatusOr<at::Tensor> ListSource::Load(const std::string& path,
                                            const Grid& grid,
                                            bool labels) const {
  const std::string name = CacheName(path, grid);
  if (const auto kept = cache_.Find(name); kept.has_value()) return *kept;
  Volume volume;
  if (labels) {
    MIR_ASSIGN_OR_RETURN(volume, ReadLabels(path));
  } else {
    MIR_ASSIGN_OR_RETURN(volume,
                         ReadNormalized(path, options_.prepare.intensity));
  }
  at::Tensor voxels;
  MIR_RETURN_IF_ERROR(CatchTorch([&] {
    voxels = OntoGrid(volume, grid).voxels.unsqueeze(0);
    return absl::OkStatus();
  }));
  cache_.Insert(name, voxels);
  return voxels;
}

absl::StatusOr<Pair> ListSource::Get(int64_t epoch, int64_t index) const {
  if (epoch < 0 || index < 0 || index >= size()) {
    return absl::OutOfRangeError(absl::StrCat(
        "list: no pair ", index, " in epoch ", epoch, "; there are ", size()));
  }
  // What is kept may be trained on later, whatever mode the caller is in.
  const c10::InferenceMode normal_tensors(/*enabled=*/false);
  const c10::NoGradGuard no_grad;
  const ListedPair files = PairAt(epoch, index);
  MIR_ASSIGN_OR_RETURN(
      const Grid grid,
      NetworkGrid(files.fixed.image, files.fixed.grid, files.moving.image,
                  files.moving.grid, options_.prepare));
  Pair pair;
  pair.name = absl::StrCat(files.moving.image, " onto ", files.fixed.image);
  MIR_ASSIGN_OR_RETURN(pair.fixed, Load(files.fixed.image, grid, false));
  MIR_ASSIGN_OR_RETURN(pair.moving, Load(files.moving.image, grid, false));
  if (!files.fixed.labels.empty() && !files.moving.labels.empty()) {
    MIR_ASSIGN_OR_RETURN(pair.fixed_labels,
                         Load(files.fixed.labels, grid, true));
    MIR_ASSIGN_OR_RETURN(pair.moving_labels,
                         Load(files.moving.labels, grid, true));
  }
  return pair;
}

}  // namespace mir::data
