// //tools:deform: pairs to register, made from one real volume.

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "mir/base/exit_status.h"
#include "mir/base/status_macros.h"
#include "mir/data/atlas_source.h"
#include "mir/data/intensity.h"
#include "mir/data/nifti.h"
#include "mir/data/pair.h"
#include "mir/launch/exit_codes.h"
#include "tools/command/run_command.h"

ABSL_FLAG(std::string, image, "", "NIfTI image to deform.");
ABSL_FLAG(std::string, labels, "", "Its labels, deformed along.");
ABSL_FLAG(double, spacing, 0, "Voxel size in mm; 0 keeps the image's grid.");
ABSL_FLAG(int64_t, pairs, 1, "How many pairs to make.");
ABSL_FLAG(int64_t, seed, 1,
          "Of the deformations. Trainings with --atlas use 0 unless told, so 1 "
          "makes pairs that they have not seen.");
ABSL_FLAG(std::string, out, "deformed", "Folder to write to.");

namespace mir::tools {
namespace {

namespace fs = std::filesystem;

// Writes the files of one pair, and returns its entry in dataset.json.
absl::StatusOr<nlohmann::json> WritePair(const std::string& out,
                                         const std::string& name,
                                         const data::Pair& pair,
                                         const data::Volume& grid) {
  const auto file = [&](const char* part) {
    return absl::StrCat(name, "_", part, ".nii.gz");
  };
  nlohmann::json entry;
  for (const auto& [part, image] :
       {std::pair("fixed", pair.fixed), std::pair("moving", pair.moving)}) {
    MIR_RETURN_IF_ERROR(data::WriteImage(out + "/" + file(part), image, grid));
    entry[part] = file(part);
  }
  if (!pair.fixed_labels.defined()) return entry;
  for (const auto& [part, labels] :
       {std::pair("fixed_label", pair.fixed_labels),
        std::pair("moving_label", pair.moving_labels)}) {
    MIR_RETURN_IF_ERROR(
        data::WriteLabels(out + "/" + file(part), labels, grid));
    entry[part] = file(part);
  }
  return entry;
}

absl::Status Run() {
  const int64_t pairs = absl::GetFlag(FLAGS_pairs);
  if (absl::GetFlag(FLAGS_image).empty()) {
    return absl::InvalidArgumentError("wanted --image IMAGE, a NIfTI file");
  }
  if (pairs < 1 || absl::GetFlag(FLAGS_seed) < 0) {
    return absl::InvalidArgumentError(
        "--pairs must be at least 1, and --seed at least 0");
  }
  data::AtlasOptions atlas;
  atlas.image = absl::GetFlag(FLAGS_image);
  atlas.labels = absl::GetFlag(FLAGS_labels);
  atlas.prepare.intensity.kind = data::Intensity::Kind::kNone;
  atlas.prepare.spacing_mm = absl::GetFlag(FLAGS_spacing);
  atlas.seed = static_cast<uint64_t>(absl::GetFlag(FLAGS_seed));
  atlas.count = pairs;
  absl::StatusOr<std::unique_ptr<data::AtlasSource>> source =
      data::AtlasSource::Make(atlas);
  if (!source.ok()) return WithExitCode(source.status(), launch::kData);

  const std::string out = absl::GetFlag(FLAGS_out);
  if (out.empty()) {
    return absl::InvalidArgumentError("--out wants the name of a folder");
  }
  std::error_code error;
  fs::create_directories(out, error);
  if (error) {
    return WithExitCode(absl::PermissionDeniedError(absl::StrCat(
                            "cannot write to ", out, ": ", error.message(),
                            "; choose another folder with --out")),
                        launch::kEnvironment);
  }
  nlohmann::json entries = nlohmann::json::array();
  for (int64_t i = 0; i < pairs; ++i) {
    absl::StatusOr<data::Pair> pair = (*source)->Get(/*epoch=*/0, i);
    if (!pair.ok()) return WithExitCode(pair.status(), launch::kData);
    absl::StatusOr<nlohmann::json> entry = WritePair(
        out, absl::StrFormat("pair-%04d", i), *pair, (*source)->image());
    if (!entry.ok()) return WithExitCode(entry.status(), launch::kEnvironment);
    entries.push_back(*std::move(entry));
  }
  std::ofstream file(out + "/dataset.json", std::ios::binary);
  file << nlohmann::json({{"registration_val", entries}}).dump(2) << "\n";
  file.flush();
  if (!file) {
    return WithExitCode(
        absl::PermissionDeniedError(absl::StrCat("cannot write to ", out)),
        launch::kEnvironment);
  }
  Say("Deformed",
      absl::StrCat(pairs, " pairs, listed in ", out, "/dataset.json"));
  return absl::OkStatus();
}

}  // namespace
}  // namespace mir::tools

int main(int argc, char** argv) {
  return mir::tools::RunCommand(
      argc, argv,
      "Usage: deform --image IMAGE [--labels LABELS] [options]\n\n"
      "Makes pairs to register from one volume: two copies of it, each under a "
      "random\ndiffeomorphism of its own, with a dataset.json that `register "
      "--data` takes.",
      mir::tools::Run);
}
