// //tools:register: applies a trained model to a pair of volumes, or to a list.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "mir/base/catch_torch.h"
#include "mir/base/exit_status.h"
#include "mir/base/status_macros.h"
#include "mir/data/dataset_list.h"
#include "mir/data/nifti.h"
#include "mir/data/summary_picture.h"
#include "mir/distributed/collectives.h"
#include "mir/distributed/data_parallel.h"
#include "mir/distributed/init.h"
#include "mir/distributed/sampler.h"
#include "mir/launch/exit_codes.h"
#include "mir/launch/world.h"
#include "mir/precision/autocast.h"
#include "mir/precision/precision.h"
#include "tools/command/run_command.h"
#include "tools/command/under_runner.h"
#include "tools/register/measure.h"
#include "tools/register/register_volumes.h"
#include "tools/register/trained_model.h"

ABSL_FLAG(std::string, weights, "", "Checkpoint of the model to apply.");
ABSL_FLAG(std::string, fixed, "", "NIfTI image to register onto.");
ABSL_FLAG(std::string, moving, "", "NIfTI image to register.");
ABSL_FLAG(std::string, fixed_labels, "",
          "Labels of --fixed, for Dice and HD95.");
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
ABSL_FLAG(std::vector<std::string>, hyper, {},
          "Hyperparameters of a hypernetwork, from 0 to 1: H or H1,H2; empty "
          "takes the training's own.");
ABSL_FLAG(double, fill, 0,
          "What the warped image reads outside the moving one.");
ABSL_FLAG(std::string, device, "auto", "cpu, cuda or auto.");
ABSL_FLAG(std::string, precision, "fp32", "fp32, fp16 or bf16.");
ABSL_FLAG(int64_t, threads, 0, "CPU threads; 0 leaves it to OMP_NUM_THREADS.");
ABSL_FLAG(int, cpu_procs, 0,
          "With --data: shares the pairs among so many processes.");
ABSL_FLAG(std::string, gpus, "",
          "With --data: shares the pairs among processes on so many GPUs, or "
          "all.");
ABSL_FLAG(std::string, mode, "ddp",
          "With --data: ddp shares the pairs among the processes that a "
          "launcher started; dp among --replicas devices of one process.");
ABSL_FLAG(int, replicas, 1, "Of --mode dp: how many devices.");

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
  // A measure that is null, such as the Dice of no label at all, is no number.
  const auto number = [&](const char* name) {
    const nlohmann::json& value = measured[name];
    return value.is_number() ? value.get<double>() : std::nan("");
  };
  if (measured.contains("dice")) {
    absl::StrAppendFormat(
        &said, ", Dice %.4f (before %.4f), HD95 %.2f mm (before %.2f)",
        number("dice"), number("dice_before"), number("hd95_mm"),
        number("hd95_mm_before"));
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

// Registers the pairs at `indices` in `files`, on as many devices at once as
// there are models. Returns what was measured, in the order of `indices`.
absl::StatusOr<std::vector<nlohmann::json>> RegisterAll(
    const std::vector<TrainedModel>& models,
    const std::vector<at::Device>& devices, const std::vector<PairFiles>& files,
    const std::vector<int64_t>& indices, const RegisterOptions& options,
    const std::string& out) {
  std::vector<nlohmann::json> measured(indices.size());
  std::vector<absl::Status> statuses(indices.size());
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  const auto work = [&](size_t replica) {
    RegisterOptions own = options;
    own.device = devices[replica];
    for (size_t i; !failed && (i = next++) < indices.size();) {
      statuses[i] = CatchTorch([&]() -> absl::Status {
        MIR_ASSIGN_OR_RETURN(
            measured[i],
            RegisterOne(models[replica], files[indices[i]], own, out));
        return absl::OkStatus();
      });
      if (!statuses[i].ok()) failed = true;
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < models.size(); ++i) threads.emplace_back(work, i);
  work(0);
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) MIR_RETURN_IF_ERROR(status);
  return measured;
}

// The ranks' measurements of their shares, in the order of the cases.
absl::StatusOr<std::vector<nlohmann::json>> Gather(
    const distributed::Context& context, size_t case_count,
    const std::vector<nlohmann::json>& own) {
  std::vector<nlohmann::json> all(case_count);
  for (int rank = 0; rank < context.world.size; ++rank) {
    MIR_ASSIGN_OR_RETURN(const std::string text,
                         distributed::BroadcastString(
                             context, nlohmann::json(own).dump(), rank));
    nlohmann::json measured = nlohmann::json::parse(text);
    const std::vector<int64_t> share = distributed::ShareOf(
        static_cast<int64_t>(case_count), rank, context.world.size);
    for (size_t i = 0; i < share.size(); ++i) {
      all[share[i]] = std::move(measured.at(i));
    }
  }
  return all;
}

// How many devices of this process share the pairs.
absl::StatusOr<int> ReplicasFromFlags(const launch::World& world) {
  const std::string mode = absl::GetFlag(FLAGS_mode);
  const int replicas = absl::GetFlag(FLAGS_replicas);
  if (mode != "ddp" && mode != "dp") {
    return absl::InvalidArgumentError(
        absl::StrCat("--mode must be ddp or dp, got '", mode, "'"));
  }
  if (replicas < 1 || (replicas > 1 && mode != "dp")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--replicas must be at least 1, and goes with --mode dp; got ",
        replicas, " with --mode ", mode));
  }
  if (mode == "dp" && world.size > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--mode dp wants one process, got ", world.size, " ranks"));
  }
  return replicas;
}

// Where several processes are asked for and none was started yet, becomes their
// launcher.
absl::Status StartRanksIfAsked(const std::vector<std::string>& arguments) {
  const int cpu_procs = absl::GetFlag(FLAGS_cpu_procs);
  const std::string gpus = absl::GetFlag(FLAGS_gpus);
  if (cpu_procs == 0 && gpus.empty()) return absl::OkStatus();
  if (absl::GetFlag(FLAGS_data).empty()) {
    return absl::InvalidArgumentError(
        "--cpu-procs and --gpus share the pairs of a list: wanted --data too");
  }
  std::vector<std::string> options = {"--console=all"};
  if (cpu_procs != 0) {
    options.push_back(absl::StrCat("--cpu-procs=", cpu_procs));
  }
  if (!gpus.empty()) options.push_back(absl::StrCat("--gpus=", gpus));
  if (absl::GetFlag(FLAGS_threads) > 0) {
    options.push_back(absl::StrCat("--threads=", absl::GetFlag(FLAGS_threads)));
  }
  options.push_back(absl::StrCat("--out=", absl::GetFlag(FLAGS_out)));
  return BecomeRunner(RunnerBesideThis(), options,
                      WithoutFlags(arguments, {"cpu-procs", "gpus", "out"}));
}

absl::Status RunRank(const distributed::Context& context, bool is_list) {
  MIR_ASSIGN_OR_RETURN(const int replicas, ReplicasFromFlags(context.world));
  if (absl::GetFlag(FLAGS_threads) > 0) {
    at::set_num_threads(static_cast<int>(absl::GetFlag(FLAGS_threads)));
  }
  RegisterOptions options;
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
  std::vector<double> hyperparameters;
  for (const std::string& part : absl::GetFlag(FLAGS_hyper)) {
    hyperparameters.emplace_back();
    if (!absl::SimpleAtod(part, &hyperparameters.back())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--hyper wants numbers such as 0.3 or 0.3,0.5, got '", part, "'"));
    }
  }
  const std::vector<at::Device> devices =
      distributed::ConsecutiveDevices(context.device, replicas);
  std::vector<TrainedModel> models;
  for (const at::Device& device : devices) {
    MIR_ASSIGN_OR_RETURN(
        TrainedModel trained,
        LoadTrainedModel({.weights = absl::GetFlag(FLAGS_weights),
                          .model = absl::GetFlag(FLAGS_model),
                          .configuration = absl::GetFlag(FLAGS_config),
                          .intensity = absl::GetFlag(FLAGS_intensity),
                          .hyperparameters = hyperparameters},
                         device));
    models.push_back(std::move(trained));
  }

  MIR_ASSIGN_OR_RETURN(
      const std::vector<PairFiles> files,
      FilesFromFlags(options.spacing_mm >= 0 ? options.spacing_mm
                                             : models[0].prepare.spacing_mm));
  MIR_ASSIGN_OR_RETURN(
      const std::vector<nlohmann::json> own,
      RegisterAll(models, devices, files,
                  distributed::ShareOf(static_cast<int64_t>(files.size()),
                                       context.world.rank, context.world.size),
                  options, out));
  if (!is_list) return absl::OkStatus();
  MIR_ASSIGN_OR_RETURN(const std::vector<nlohmann::json> all,
                       Gather(context, files.size(), own));
  if (!distributed::IsMainProcess(context)) return absl::OkStatus();
  return WithExitCode(WriteJson(out + "/metrics.json", Summarize(all)),
                      launch::kEnvironment);
}

absl::Status Run(const std::vector<std::string>& arguments) {
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
  MIR_RETURN_IF_ERROR(StartRanksIfAsked(arguments));
  distributed::InitOptions init;
  init.device = device == "cpu"    ? distributed::DeviceKind::kCpu
                : device == "cuda" ? distributed::DeviceKind::kCuda
                                   : distributed::DeviceKind::kAuto;
  // Who is done with a share waits for the others; a dead one is noticed at
  // once.
  init.collective_timeout = absl::Hours(24);
  // One pair is registered alone, wherever this runs.
  const bool is_list = !absl::GetFlag(FLAGS_data).empty();
  if (!is_list) init.world = launch::World();
  MIR_ASSIGN_OR_RETURN(distributed::Context context,
                       distributed::InitDistributed(init));
  const absl::Status status = distributed::CatchCollective(
      context, [&] { return RunRank(context, is_list); });
  distributed::Cleanup(context);
  return status;
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
      [&] {
        return mir::tools::Run({argv + 1, argv + argc});
      });
}
