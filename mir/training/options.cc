#include "mir/training/options.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "mir/base/nearest.h"
#include "mir/base/status_macros.h"
#include "mir/precision/precision.h"
#include "mir/training/schedule.h"

namespace mir::training {
namespace {

// Far beyond what anybody wants, and far from what overflows.
constexpr int64_t kMost = 1'000'000'000;
// A volume of 1 GiB.
constexpr int64_t kMostVoxels = int64_t{1} << 28;

absl::Status Between(const char* option, int64_t value, int64_t least,
                     int64_t most = kMost) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      option, " must be from ", least, " to ", most, ", got ", value));
}

absl::Status FiniteAndNotNegative(const char* option, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(option, " must be a number of at least 0, got ", value));
}

absl::Status OneOf(const char* option, const std::string& value,
                   const std::vector<std::string>& allowed) {
  for (const std::string& name : allowed) {
    if (value == name) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(option, " must be one of ", absl::StrJoin(allowed, ", "),
                   ", got '", value, "'", DidYouMean(value, allowed)));
}

absl::Status CheckData(const DataOptions& data) {
  if (!data.list.empty() && !data.atlas.empty()) {
    return absl::InvalidArgumentError(
        "--data and --atlas are two sources; give one");
  }
  if (data.atlas.empty() != data.atlas_labels.empty()) {
    return absl::InvalidArgumentError(
        "--atlas and --atlas-labels belong together; give both");
  }
  if (data.size.size() < 2 || data.size.size() > 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("--size wants 2 or 3 numbers such as 64,64,64, got ",
                     data.size.size()));
  }
  int64_t voxels = 1;
  for (const int64_t size : data.size) {
    if (size < 8 || size > 4096) {
      return absl::InvalidArgumentError(
          absl::StrCat("--size wants sizes from 8 to 4096, got ", size));
    }
    voxels *= size;
  }
  if (voxels > kMostVoxels) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--size ", absl::StrJoin(data.size, ","),
        " makes volumes "
        "of ",
        voxels, " voxels; at most ", kMostVoxels, " fit, 640,640,640 say"));
  }
  MIR_RETURN_IF_ERROR(FiniteAndNotNegative("--spacing", data.spacing_mm));
  MIR_RETURN_IF_ERROR(Between("--pairs-per-epoch", data.pairs_per_epoch, 1));
  MIR_RETURN_IF_ERROR(Between("--val-pairs", data.validation_pairs, 0));
  return Between("--loader-threads", data.loader_threads, 1, 256);
}

}  // namespace

absl::Status CheckOptions(const TrainOptions& options) {
  MIR_RETURN_IF_ERROR(CheckData(options.data));
  MIR_RETURN_IF_ERROR(Between("--steps", options.steps, 0));
  MIR_RETURN_IF_ERROR(Between("--epochs", options.epochs, 0, 1'000'000));
  if ((options.steps > 0) == (options.epochs > 0)) {
    return absl::InvalidArgumentError(
        options.steps > 0 ? "--steps and --epochs both say how long; give one"
                          : "--steps or --epochs must be at least 1");
  }
  MIR_RETURN_IF_ERROR(Between("--batch-size", options.batch_size, 1, 4096));
  MIR_RETURN_IF_ERROR(Between("--accumulate", options.accumulate, 1, 65536));
  MIR_RETURN_IF_ERROR(
      FiniteAndNotNegative("--similarity-weight", options.similarity_weight));
  MIR_RETURN_IF_ERROR(
      FiniteAndNotNegative("--regularizer-weight", options.regularizer_weight));
  for (const double value : options.hyperparameters) {
    if (!(value >= 0 && value <= 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--hyper wants numbers from 0 to 1, got ", value));
    }
  }
  if (!(options.learning_rate > 0 && options.learning_rate <= 1000)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--lr must be a number above 0 and at most 1000, got ",
                     options.learning_rate));
  }
  MIR_RETURN_IF_ERROR(
      OneOf("--lr-schedule", options.learning_rate_schedule, ScheduleNames()));
  if (options.amsgrad && options.optimizer == "sgd") {
    return absl::InvalidArgumentError(
        "--amsgrad is for adam and adamw and does nothing with sgd; leave it "
        "out");
  }
  if (!(options.weight_decay <= 1000)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--weight-decay must be a number of at most 1000, got ",
                     options.weight_decay));
  }
  MIR_RETURN_IF_ERROR(
      OneOf("--optimizer", options.optimizer, {"adam", "adamw", "sgd"}));
  MIR_RETURN_IF_ERROR(OneOf("--gradient-compression",
                            options.gradient_compression,
                            {"none", "bf16", "fp16"}));
  MIR_RETURN_IF_ERROR(precision::ParsePrecision(options.precision).status());
  MIR_RETURN_IF_ERROR(
      OneOf("--device", options.device, {"auto", "cpu", "cuda"}));
  MIR_RETURN_IF_ERROR(
      OneOf("--warp-convention", options.warp_convention, {"exact", "mir"}));
  MIR_RETURN_IF_ERROR(Between("--seed", options.seed, 0));
  MIR_RETURN_IF_ERROR(Between("--threads", options.threads, 0, 4096));
  MIR_RETURN_IF_ERROR(Between("--val-every", options.validate_every, 0));
  return Between("--skip-nonfinite", options.skip_nonfinite, 0);
}

}  // namespace mir::training
