#include "mir/training/sources.h"

#include <utility>

#include "mir/base/exit_status.h"
#include "mir/base/status_macros.h"
#include "mir/data/atlas_source.h"
#include "mir/data/dataset_list.h"
#include "mir/data/intensity.h"
#include "mir/data/list_source.h"
#include "mir/data/prepare.h"
#include "mir/data/synthetic_source.h"
#include "mir/launch/exit_codes.h"

namespace mir::training {
namespace {

absl::StatusOr<Sources> Synthetic(const TrainOptions& options) {
  data::SyntheticOptions synthetic;
  synthetic.seed = static_cast<uint64_t>(options.seed);
  synthetic.size = options.data.size;
  synthetic.count = options.data.pairs_per_epoch;
  Sources sources;
  MIR_ASSIGN_OR_RETURN(sources.training,
                       data::SyntheticSource::Make(synthetic));
  if (options.data.validation_pairs > 0) {
    synthetic.count = options.data.validation_pairs;
    synthetic.validation = true;
    MIR_ASSIGN_OR_RETURN(sources.validation,
                         data::SyntheticSource::Make(synthetic));
  }
  return sources;
}

absl::StatusOr<Sources> FromAtlas(const TrainOptions& options,
                                  const data::PrepareOptions& prepare) {
  data::AtlasOptions atlas;
  atlas.image = options.data.atlas;
  atlas.labels = options.data.atlas_labels;
  atlas.prepare = prepare;
  atlas.seed = static_cast<uint64_t>(options.seed);
  atlas.count = options.data.pairs_per_epoch;
  MIR_ASSIGN_OR_RETURN(std::unique_ptr<data::AtlasSource> training,
                       data::AtlasSource::Make(atlas));
  Sources sources;
  if (options.data.validation_pairs > 0) {
    MIR_ASSIGN_OR_RETURN(sources.validation,
                         training->Validation(options.data.validation_pairs));
  }
  sources.training = std::move(training);
  return sources;
}

absl::StatusOr<Sources> FromList(const TrainOptions& options,
                                 const data::PrepareOptions& prepare) {
  MIR_ASSIGN_OR_RETURN(const data::DatasetList list,
                       data::ReadDatasetList(options.data.list, prepare));
  data::ListSourceOptions source;
  source.prepare = prepare;
  source.seed = static_cast<uint64_t>(options.seed);
  Sources sources;
  sources.notes = list.notes;
  MIR_ASSIGN_OR_RETURN(sources.training,
                       data::ListSource::Training(list, source));
  if (!list.validation_pairs.empty()) {
    MIR_ASSIGN_OR_RETURN(sources.validation,
                         data::ListSource::Validation(list, source));
  }
  return sources;
}

}  // namespace

absl::StatusOr<Sources> MakeSources(const TrainOptions& options) {
  data::PrepareOptions prepare;
  prepare.spacing_mm = options.data.spacing_mm;
  absl::StatusOr<data::Intensity> intensity =
      data::ParseIntensity(options.data.intensity);
  if (!intensity.ok()) {
    return WithExitCode(intensity.status(), launch::kArguments);
  }
  prepare.intensity = *intensity;
  if (!options.data.list.empty()) return FromList(options, prepare);
  if (!options.data.atlas.empty()) return FromAtlas(options, prepare);
  return Synthetic(options);
}

}  // namespace mir::training
