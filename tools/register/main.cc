// //tools:register: applies a trained model to a pair of volumes, or to a list.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "mir/base/exit_status.h"
#include "mir/base/status_macros.h"
#include "mir/data/dataset_list.h"
#include "mir/data/nifti.h"
#include "mir/data/summary_picture.h"
#include "mir/distributed/init.h"
#include "mir/launch/exit_codes.h"
#include "mir/metrics/dice.h"
#include "mir/metrics/folding.h"
#include "mir/precision/autocast.h"
#include "mir/precision/precision.h"
#include "tools/command/run_command.h"
#include "tools/register/register_volumes.h"
#include "tools/register/trained_model.h"

ABSL_FLAG(std::string, weights, "", "Checkpoint of the model to apply.");
ABSL_FLAG(std::string, fixed, "", "NIfTI image to register onto.");
ABSL_FLAG(std::string, moving, "", "NIfTI image to register.");
ABSL_FLAG(std::string, fixed_labels, "", "Labels of --fixed, for the Dice.");
ABSL_FLAG(std::string, moving_labels, "", "Labels of --moving, warped too.");
ABSL_FLAG(std::string, data, "",
          "A dataset.json instead: registers its validation pairs, each into a "
          "folder of its own.");
ABSL_FLAG(std::string, out, "registered", "Folder to write to.");
ABSL_FLAG(std::string, model, "",
          "The model, for weights that do not say which (files of MIR).");
ABSL_FLAG(std::string, config, "", "Its configuration, likewise.");
ABSL_FLAG(std::string, intensity, "",
          "How intensities become 0..1; empty takes the training's own.");
ABSL_FLAG(double, spacing, -1,
          "Voxel size in mm of the grid that the network sees; 0: the images' "
          "own, -1: the training's.");
ABSL_FLAG(double, fill, 0,
          "What the warped image reads outside the moving one.");
ABSL_FLAG(std::string, device, "auto", "cpu, cuda or auto.");
ABSL_FLAG(std::string, precision, "fp32", "fp32, fp16 or bf16.");
ABSL_FLAG(int64_t, threads, 0, "CPU threads; 0 leaves it to OMP_NUM_THREADS.");

namespace mir::tools {
namespace {

namespace fs = std::filesystem;

struct PairFiles {
  std::string name;  // Of the folder below --out; empty for --out itself.
  std::string fixed, moving, fixed_labels, moving_labels;
};

absl::Status MakeFolder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return WithExitCode(absl::PermissionDeniedError(absl::StrCat(
                          "cannot write to ", folder, ": ", error.message(),
                          "; choose another folder with --out")),
                      launch::kEnvironment);
}

absl::StatusOr<VolumePair> ReadPair(const PairFiles& files) {
  VolumePair pair;
  MIR_ASSIGN_OR_RETURN(pair.fixed, data::ReadImage(files.fixed));
  MIR_ASSIGN_OR_RETURN(pair.moving, data::ReadImage(files.moving));
  if (!files.fixed_labels.empty()) {
    MIR_ASSIGN_OR_RETURN(pair.fixed_labels,
                         data::ReadLabels(files.fixed_labels));
  }
  if (!files.moving_labels.empty()) {
    MIR_ASSIGN_OR_RETURN(pair.moving_labels,
                         data::ReadLabels(files.moving_labels));
  }
  return pair;
}

// What metrics.json says of one pair.
nlohmann::json Measure(const VolumePair& pair, const RegisteredVolumes& found) {
  nlohmann::json measured = {
      {"fixed", pair.fixed.name},
      {"moving", pair.moving.name},
      {"folded", metrics::FoldedShare(found.displacement.unsqueeze(0))}};
  if (!pair.fixed_labels.voxels.defined() || !found.warped_labels.defined()) {
    return measured;
  }
  const metrics::DiceScores before =
      metrics::Dice(found.moving_labels, pair.fixed_labels.voxels);
  const metrics::DiceScores after =
      metrics::Dice(found.warped_labels, pair.fixed_labels.voxels);
  measured["dice_before"] = before.mean;
  measured["dice"] = after.mean;
  const auto by_label = [](const metrics::DiceScores& scores) {
    nlohmann::json labels = nlohmann::json::object();
    for (size_t i = 0; i < scores.labels.size(); ++i) {
      labels[absl::StrCat(scores.labels[i])] = scores.dice[i];
    }
    return labels;
  };
  measured["dice_before_by_label"] = by_label(before);
  measured["dice_by_label"] = by_label(after);
  return measured;
}

absl::Status WriteJson(const std::string& path, const nlohmann::json& json) {
  std::ofstream file(path, std::ios::binary);
  file << json.dump(2) << "\n";
  file.flush();
  if (file) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("cannot write ", path));
}

absl::Status WriteAll(const std::string& folder, const VolumePair& pair,
                      const RegisteredVolumes& found,
                      const nlohmann::json& measured) {
  const data::Volume& grid = pair.fixed;
  MIR_RETURN_IF_ERROR(
      data::WriteImage(folder + "/warped.nii.gz", found.warped, grid));
  if (found.warped_labels.defined()) {
    MIR_RETURN_IF_ERROR(data::WriteLabels(folder + "/warped_labels.nii.gz",
                                          found.warped_labels, grid));
  }
  MIR_RETURN_IF_ERROR(data::WriteItkDisplacement(
      folder + "/displacement_itk.nii.gz", found.displacement, grid));
  MIR_RETURN_IF_ERROR(data::WriteVoxelDisplacement(
      folder + "/displacement_voxels.nii.gz", found.displacement, grid));
  const auto drawn = [](const at::Tensor& volume) {
    return volume.unsqueeze(0).unsqueeze(0);
  };
  MIR_RETURN_IF_ERROR(data::WriteRegistrationPicture(
      folder + "/picture.png", drawn(pair.fixed.voxels), drawn(found.moving),
      drawn(found.warped), found.displacement.unsqueeze(0)));
  return WriteJson(folder + "/metrics.json", measured);
}

absl::StatusOr<nlohmann::json> RegisterOne(const TrainedModel& trained,
                                           const PairFiles& files,
                                           const RegisterOptions& options,
                                           const std::string& out) {
  absl::StatusOr<VolumePair> pair = ReadPair(files);
  if (!pair.ok()) return WithExitCode(pair.status(), launch::kData);
  const absl::Time began = absl::Now();
  MIR_ASSIGN_OR_RETURN(const RegisteredVolumes found,
                       RegisterVolumes(trained, *pair, options));
  const double seconds = absl::ToDoubleSeconds(absl::Now() - began);
  nlohmann::json measured = Measure(*pair, found);
  measured["seconds"] = seconds;

  const std::string folder =
      files.name.empty() ? out : absl::StrCat(out, "/", files.name);
  MIR_RETURN_IF_ERROR(MakeFolder(folder));
  MIR_RETURN_IF_ERROR(WithExitCode(WriteAll(folder, *pair, found, measured),
                                   launch::kEnvironment));
  std::string said =
      absl::StrFormat("%s in %.1f s, folded %.2f %%", folder, seconds,
                      100 * measured["folded"].get<double>());
  if (measured.contains("dice")) {
    absl::StrAppendFormat(&said, ", Dice %.4f (before %.4f)",
                          measured["dice"].get<double>(),
                          measured["dice_before"].get<double>());
  }
  Say("Registered", said);
  return measured;
}

// What to register; `spacing_mm` is that of the network's grid.
absl::StatusOr<std::vector<PairFiles>> FilesFromFlags(double spacing_mm) {
  const std::string list = absl::GetFlag(FLAGS_data);
  const std::string fixed = absl::GetFlag(FLAGS_fixed);
  const std::string moving = absl::GetFlag(FLAGS_moving);
  if (list.empty()) {
    if (fixed.empty() || moving.empty()) {
      return absl::InvalidArgumentError(
          "wanted --fixed IMAGE and --moving IMAGE, or --data dataset.json");
    }
    return std::vector<PairFiles>{{"", fixed, moving,
                                   absl::GetFlag(FLAGS_fixed_labels),
                                   absl::GetFlag(FLAGS_moving_labels)}};
  }
  if (!fixed.empty() || !moving.empty()) {
    return absl::InvalidArgumentError(
        "--data and --fixed or --moving both say what to register; give one");
  }
  data::PrepareOptions prepare;
  prepare.spacing_mm = spacing_mm;
  absl::StatusOr<data::DatasetList> dataset =
      data::ReadDatasetList(list, prepare, /*with_training=*/false);
  if (!dataset.ok()) return WithExitCode(dataset.status(), launch::kData);
  std::vector<PairFiles> files;
  for (const data::ListedPair& pair : dataset->validation_pairs) {
    files.push_back({absl::StrFormat("pair-%04d", files.size()),
                     pair.fixed.image, pair.moving.image, pair.fixed.labels,
                     pair.moving.labels});
  }
  if (files.empty()) {
    return WithExitCode(
        absl::InvalidArgumentError(absl::StrCat(
            list, " has no pairs under validation or registration_val")),
        launch::kData);
  }
  return files;
}

absl::Status Run() {
  if (absl::GetFlag(FLAGS_weights).empty()) {
    return absl::InvalidArgumentError(
        "wanted --weights CHECKPOINT, such as "
        "runs/latest/checkpoints/best.pth");
  }
  const std::string device = absl::GetFlag(FLAGS_device);
  if (device != "auto" && device != "cpu" && device != "cuda") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--device must be one of auto, cpu, cuda, got '", device, "'"));
  }
  MIR_ASSIGN_OR_RETURN(
      const distributed::Context context,
      distributed::InitDistributed(
          {.world = launch::World(),
           .device = device == "cpu"    ? distributed::DeviceKind::kCpu
                     : device == "cuda" ? distributed::DeviceKind::kCuda
                                        : distributed::DeviceKind::kAuto}));
  if (absl::GetFlag(FLAGS_threads) > 0) {
    at::set_num_threads(static_cast<int>(absl::GetFlag(FLAGS_threads)));
  }
  RegisterOptions options;
  options.device = context.device;
  options.spacing_mm = absl::GetFlag(FLAGS_spacing);
  if (!(options.spacing_mm >= 0 || options.spacing_mm == -1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--spacing must be a number of at least 0, or -1, got ",
                     options.spacing_mm));
  }
  options.fill = absl::GetFlag(FLAGS_fill);
  MIR_ASSIGN_OR_RETURN(
      const precision::Precision wanted,
      precision::ParsePrecision(absl::GetFlag(FLAGS_precision)));
  std::string warning;
  absl::StatusOr<precision::Precision> runnable =
      precision::RunnablePrecision(wanted, context.device, &warning);
  if (!runnable.ok()) {
    return WithExitCode(runnable.status(), launch::kEnvironment);
  }
  options.precision = *runnable;
  if (!warning.empty()) Say("Warning", warning);

  const std::string out = absl::GetFlag(FLAGS_out);
  if (out.empty()) {
    return absl::InvalidArgumentError("--out wants the name of a folder");
  }
  MIR_RETURN_IF_ERROR(MakeFolder(out));
  MIR_ASSIGN_OR_RETURN(
      const TrainedModel trained,
      LoadTrainedModel({.weights = absl::GetFlag(FLAGS_weights),
                        .model = absl::GetFlag(FLAGS_model),
                        .configuration = absl::GetFlag(FLAGS_config),
                        .intensity = absl::GetFlag(FLAGS_intensity)},
                       context.device));

  MIR_ASSIGN_OR_RETURN(
      const std::vector<PairFiles> files,
      FilesFromFlags(options.spacing_mm >= 0 ? options.spacing_mm
                                             : trained.prepare.spacing_mm));
  nlohmann::json all = nlohmann::json::array();
  double dice = 0;
  double dice_before = 0;
  int64_t with_labels = 0;
  for (const PairFiles& pair : files) {
    MIR_ASSIGN_OR_RETURN(nlohmann::json measured,
                         RegisterOne(trained, pair, options, out));
    if (measured.contains("dice")) {
      dice += measured["dice"].get<double>();
      dice_before += measured["dice_before"].get<double>();
      ++with_labels;
    }
    all.push_back(std::move(measured));
  }
  if (absl::GetFlag(FLAGS_data).empty()) return absl::OkStatus();
  nlohmann::json summary = {{"pairs", all}};
  if (with_labels > 0) {
    summary["dice"] = dice / with_labels;
    summary["dice_before"] = dice_before / with_labels;
  }
  return WithExitCode(WriteJson(out + "/metrics.json", summary),
                      launch::kEnvironment);
}

}  // namespace
}  // namespace mir::tools

int main(int argc, char** argv) {
  return mir::tools::RunCommand(
      argc, argv,
      "Usage: register --weights W --fixed F --moving M [options]\n\n"
      "Registers a moving image onto a fixed one with a trained model. Writes "
      "the\nwarped image and labels, the displacement field (for ITK and ANTs, "
      "and in\nvoxels), a picture and metrics.json to --out.",
      mir::tools::Run);
}
