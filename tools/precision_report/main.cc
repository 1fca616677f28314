// //tools:precision_report: what 16 bits do to each loss and each warp.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "mir/base/exit_status.h"
#include "mir/base/status_macros.h"
#include "mir/data/grid.h"
#include "mir/data/intensity.h"
#include "mir/data/nifti.h"
#include "mir/data/prepare.h"
#include "mir/data/random.h"
#include "mir/data/random_deformation.h"
#include "mir/data/volume.h"
#include "mir/launch/exit_codes.h"
#include "mir/losses/factory.h"
#include "tools/command/run_command.h"
#include "tools/precision_report/report.h"

ABSL_FLAG(std::string, fixed, "", "NIfTI image.");
ABSL_FLAG(std::string, moving, "", "NIfTI image to compare and to warp.");
ABSL_FLAG(std::string, intensity, "minmax",
          "How intensities become 0..1: minmax, percentile:LO,HI, "
          "window:LO,HI, scale:F or none.");
ABSL_FLAG(
    std::string, field, "",
    "Displacement in voxels (displacement_voxels.nii.gz of `register`) to "
    "warp by; a random smooth one unless told.");
ABSL_FLAG(double, spacing, 0,
          "Resample both to cubes of this size in mm; 0 keeps the images' "
          "grid.");
ABSL_FLAG(std::vector<std::string>, similarities, {},
          "Losses to look at, by the names of `train --similarity`; all unless "
          "told.");
ABSL_FLAG(std::vector<std::string>, regularizers, {},
          "Likewise of `train --regularizer`.");
ABSL_FLAG(double, amplitude, 2,
          "Of the random smooth field that warps, in voxels.");
ABSL_FLAG(int64_t, seed, 1, "Of that field.");
ABSL_FLAG(int64_t, threads, 0, "CPU threads; 0 leaves it to OMP_NUM_THREADS.");
ABSL_FLAG(bool, json, false, "Print the result as JSON.");

namespace mir::tools {
namespace {

constexpr char kUsage[] =
    "Usage: precision_report --fixed F --moving M [options]\n\n"
    "Computes each loss of two images, and each warp of the moving one, in "
    "float64, and\nin float32, float16 and bfloat16: from inputs that are "
    "rounded to that type, under\nits autocast. Prints the exact value, and "
    "how far value and gradient are off,\nrelative to the exact ones. Runs on "
    "the CPU.";

// The images [1, 1, D, H, W] and the field [1, 3, D, H, W].
struct Inputs {
  at::Tensor fixed, moving, field;
};

absl::StatusOr<Inputs> ReadInputs(const data::Intensity& intensity,
                                  const data::DeformationOptions& deformation) {
  data::PrepareOptions prepare;
  prepare.spacing_mm = absl::GetFlag(FLAGS_spacing);
  prepare.reorient = false;  // A field's axes are those of its image's file.
  data::PairVolumes read;
  MIR_ASSIGN_OR_RETURN(
      read.fixed, data::ReadNormalized(absl::GetFlag(FLAGS_fixed), intensity));
  MIR_ASSIGN_OR_RETURN(
      read.moving,
      data::ReadNormalized(absl::GetFlag(FLAGS_moving), intensity));
  MIR_ASSIGN_OR_RETURN(const data::PairVolumes pair,
                       data::PreparePair(read, prepare));
  const auto batch = [](const at::Tensor& voxels) {
    return voxels.unsqueeze(0).unsqueeze(0);
  };
  Inputs inputs{batch(pair.fixed.voxels), batch(pair.moving.voxels), {}};
  const std::string path = absl::GetFlag(FLAGS_field);
  if (path.empty()) {
    data::RandomStream random(
        {static_cast<uint64_t>(absl::GetFlag(FLAGS_seed))});
    inputs.field = data::RandomDiffeomorphism(inputs.fixed.sizes().slice(2),
                                              deformation, random);
    return inputs;
  }
  MIR_ASSIGN_OR_RETURN(const data::Volume field,
                       data::ReadVoxelDisplacement(path));
  if (!data::SameGrid(field.grid, pair.fixed.grid)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the field and the images lie on different grids: ", path,
                     " has ", data::Describe(field.grid), ", the images have ",
                     data::Describe(pair.fixed.grid)));
  }
  inputs.field = field.voxels.unsqueeze(0);
  return inputs;
}

std::vector<std::string> NamesOr(std::vector<std::string> given,
                                 std::vector<std::string> all) {
  return given.empty() ? all : given;
}

absl::Status Run() {
  if (absl::GetFlag(FLAGS_fixed).empty() ||
      absl::GetFlag(FLAGS_moving).empty()) {
    return absl::InvalidArgumentError(
        "wanted --fixed IMAGE and --moving IMAGE, NIfTI files");
  }
  data::DeformationOptions deformation;
  deformation.amplitude_voxels = absl::GetFlag(FLAGS_amplitude);
  if (!(deformation.amplitude_voxels >= 0 &&
        deformation.amplitude_voxels <= 100) ||
      absl::GetFlag(FLAGS_spacing) < 0 || absl::GetFlag(FLAGS_seed) < 0) {
    return absl::InvalidArgumentError(
        "--amplitude must be from 0 to 100, --spacing and --seed at least 0");
  }
  const std::vector<std::string> similarities =
      NamesOr(absl::GetFlag(FLAGS_similarities), losses::SimilarityNames());
  const std::vector<std::string> regularizers =
      NamesOr(absl::GetFlag(FLAGS_regularizers), losses::RegularizerNames());
  for (const std::string& name : similarities) {
    MIR_RETURN_IF_ERROR(losses::MakeSimilarity(name).status());
  }
  for (const std::string& name : regularizers) {
    MIR_RETURN_IF_ERROR(losses::MakeRegularizer(name).status());
  }
  if (absl::GetFlag(FLAGS_threads) > 0) {
    at::set_num_threads(static_cast<int>(absl::GetFlag(FLAGS_threads)));
  }
  MIR_ASSIGN_OR_RETURN(const data::Intensity intensity,
                       data::ParseIntensity(absl::GetFlag(FLAGS_intensity)));
  deformation.smoothness_voxels = 6 * deformation.amplitude_voxels + 1;
  const absl::StatusOr<Inputs> inputs = ReadInputs(intensity, deformation);
  if (!inputs.ok()) return WithExitCode(inputs.status(), launch::kData);

  MIR_ASSIGN_OR_RETURN(
      std::vector<ReportRow> losses,
      CompareSimilarities(similarities, inputs->fixed, inputs->moving));
  MIR_ASSIGN_OR_RETURN(const std::vector<ReportRow> of_field,
                       CompareRegularizers(regularizers, inputs->field));
  losses.insert(losses.end(), of_field.begin(), of_field.end());
  const std::vector<ReportRow> warps =
      CompareWarps(inputs->moving, inputs->field);
  if (absl::GetFlag(FLAGS_json)) {
    const nlohmann::ordered_json report = {
        {"fixed", absl::GetFlag(FLAGS_fixed)},
        {"moving", absl::GetFlag(FLAGS_moving)},
        {"losses", AsJson(losses)},
        {"warps", AsJson(warps)}};
    std::cout << report.dump(2) << "\n" << std::flush;
    return absl::OkStatus();
  }
  std::cout << AsTable(losses) << "\n" << AsTable(warps) << std::flush;
  return absl::OkStatus();
}

}  // namespace
}  // namespace mir::tools

int main(int argc, char** argv) {
  return mir::tools::RunCommand(argc, argv, mir::tools::kUsage,
                                mir::tools::Run);
}
