// //tools:models: the models that can be trained, and what they cost.

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "mir/base/status_macros.h"
#include "mir/models/model_list.h"
#include "mir/precision/precision.h"
#include "tools/command/run_command.h"
#include "tools/command/volume_size.h"
#include "tools/models/model_costs.h"

ABSL_FLAG(std::string, model, "", "List this model alone.");
ABSL_FLAG(bool, memory, true,
          "Say what a training step needs; false only counts parameters.");
ABSL_FLAG(std::string, probe, "64,64,64",
          "Volume that memory is measured at, in voxels; it is then scaled by "
          "the number of voxels to 160,192,224.");
ABSL_FLAG(int64_t, most_parameters, 100'000'000,
          "Models with more are not run.");

namespace mir::tools {
namespace {

using precision::Precision;

constexpr double kFullVoxels = 160.0 * 192 * 224;
constexpr double kGigabyte = 1 << 30;

absl::StatusOr<std::vector<int64_t>> Probe() {
  return ParseVolumeSize("--probe", absl::GetFlag(FLAGS_probe), /*least=*/1,
                         /*most=*/4096, "64,64,64");
}

// "3.4" GB for each precision, or why it is not known.
std::string Memory(const std::string& model, const nlohmann::json& config,
                   int64_t parameters, const std::vector<int64_t>& probe) {
  std::vector<std::string> cells;
  for (const Precision precision :
       {Precision::kFloat32, Precision::kBFloat16}) {
    if (parameters > absl::GetFlag(FLAGS_most_parameters)) {
      // The weights alone.
      cells.push_back(absl::StrFormat("> %.1f", parameters * 20.0 / kGigabyte));
      continue;
    }
    const absl::StatusOr<StepMemory> memory =
        MeasureStep(model, config, precision, probe);
    if (!memory.ok()) return absl::StrCat(memory.status().message(), " |");
    const double scale = kFullVoxels / (1.0 * probe[0] * probe[1] * probe[2]);
    cells.push_back(absl::StrFormat(
        "%.1f", (memory->weights + scale * memory->activations) / kGigabyte));
  }
  return absl::StrCat(absl::StrJoin(cells, " | "));
}

absl::Status Run() {
  MIR_ASSIGN_OR_RETURN(const std::vector<int64_t> probe, Probe());
  const std::string only = absl::GetFlag(FLAGS_model);
  if (!only.empty()) {
    MIR_RETURN_IF_ERROR(models::FindModel(only).status());
  }
  const bool memory = absl::GetFlag(FLAGS_memory);
  std::printf("| model | configuration | parameters |%s\n|---|---|---|%s\n",
              memory ? " GB fp32 | GB bf16, fp16 |" : "",
              memory ? "---|---|" : "");
  for (const models::ModelDescription& model : models::ModelList()) {
    if (!only.empty() && model.name != only) continue;
    for (const std::string& name : model.configurations) {
      MIR_ASSIGN_OR_RETURN(const nlohmann::json config,
                           models::ModelConfig(model.name, name));
      const absl::StatusOr<int64_t> parameters =
          CountParameters(model.name, config);
      std::printf("| %s | %s | ", model.name.c_str(), name.c_str());
      if (!parameters.ok()) {
        std::printf("%s |%s\n",
                    std::string(parameters.status().message()).c_str(),
                    memory ? " | |" : "");
        continue;
      }
      std::printf("%s |", absl::StrCat(*parameters).c_str());
      if (memory) {
        std::printf(" %s |",
                    Memory(model.name, config, *parameters, probe).c_str());
      }
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  if (memory) {
    std::printf(
        "\nGB: tensors of a training step of one pair at 160x192x224. Weights, "
        "gradients and\nAdamW's averages are computed; activations are "
        "measured on the CPU at %s and scaled\nby the number of voxels. The "
        "loss adds some volumes, cuDNN its workspace.\n",
        absl::GetFlag(FLAGS_probe).c_str());
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace mir::tools

int main(int argc, char** argv) {
  return mir::tools::RunCommand(
      argc, argv,
      "Usage: models [--model NAME] [options]\n\n"
      "Lists the models, their configurations, parameters, and the memory that "
      "a training\nstep needs at 160x192x224, for each precision.",
      mir::tools::Run);
}
