// //tools/gpu_check: whether a GPU computes what the CPU does, and how fast it
// trains.

#include <ATen/Context.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mir/base/exit_status.h"
#include "mir/base/status_macros.h"
#include "mir/distributed/collectives.h"
#include "mir/distributed/init.h"
#include "mir/launch/exit_codes.h"
#include "mir/models/registry.h"
#include "mir/precision/autocast.h"
#include "mir/precision/precision.h"
#include "tools/command/run_command.h"
#include "tools/command/volume_size.h"
#include "tools/gpu_check/checks.h"
#include "tools/gpu_check/step_cost.h"

ABSL_FLAG(std::string, device, "cuda",
          "cuda, or cpu to see that the checks themselves are right.");
ABSL_FLAG(std::vector<std::string>, only, {},
          "Some of losses, geometry, models, scaler, ranks and training; empty "
          "for all but ranks in one process, and for ranks alone in several.");
ABSL_FLAG(std::string, size, "96,96,96", "Volumes of the training steps.");
ABSL_FLAG(std::string, config, "default",
          "The models' configuration in the training steps.");
ABSL_FLAG(int, steps, 5, "Training steps that are timed.");
ABSL_FLAG(std::string, json, "", "A file for the results; empty for none.");

namespace mir::tools {
namespace {

using precision::Precision;

constexpr char kUsage[] =
    "Usage: gpu_check [options]\n\nChecks that a GPU computes what the CPU "
    "does, in fp32, fp16 and bf16, and\nmeasures training steps there. Exits "
    "with 3 where there is no GPU, with 1 where\na check fails. Started once "
    "per GPU, it checks the exchange between them.";

const std::vector<std::string> kParts = {"losses", "geometry", "models",
                                         "scaler", "ranks",    "training"};

absl::StatusOr<std::vector<int64_t>> Sizes() {
  return ParseVolumeSize("--size", absl::GetFlag(FLAGS_size), /*least=*/8,
                         /*most=*/1024, "96,96,96");
}

absl::StatusOr<distributed::DeviceKind> Device() {
  const std::string name = absl::GetFlag(FLAGS_device);
  if (name == "cuda") return distributed::DeviceKind::kCuda;
  if (name == "cpu") return distributed::DeviceKind::kCpu;
  return absl::InvalidArgumentError(
      absl::StrCat("--device wants cuda or cpu, not '", name, "'"));
}

// The parts to run, in order.
absl::StatusOr<std::vector<std::string>> Parts(int ranks) {
  const std::vector<std::string> only = absl::GetFlag(FLAGS_only);
  for (const std::string& part : only) {
    if (std::find(kParts.begin(), kParts.end(), part) == kParts.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--only has no part '", part, "'; it wants some of ",
                       "losses, geometry, models, scaler, ranks, training"));
    }
  }
  std::vector<std::string> parts;
  for (const std::string& part : kParts) {
    const bool chosen =
        only.empty() ? (part == "ranks") == (ranks > 1)
                     : std::find(only.begin(), only.end(), part) != only.end();
    if (chosen) parts.push_back(part);
  }
  return parts;
}

std::vector<Check> RunChecks(const std::string& part,
                             const distributed::Context& context) {
  if (part == "losses") return CheckLosses(context.device);
  if (part == "geometry") return CheckGeometry(context.device);
  if (part == "models") return CheckModels(context.device);
  if (part == "scaler") return CheckScaler(context.device);
  return CheckRanks(context);
}

void Show(const Check& check) {
  std::printf("%s  %-12s %-28s %-5s %9.1e of %7.1e%s\n",
              check.passed() ? "  ok" : "FAIL", check.group.c_str(),
              check.name.c_str(), check.precision.c_str(), check.error,
              check.limit,
              check.fault.empty() ? "" : ("  " + check.fault).c_str());
}

void Show(const StepCost& cost) {
  if (!cost.fault.empty()) {
    std::printf("      %-28s %-5s  %s\n", cost.model.c_str(),
                cost.precision.c_str(), cost.fault.c_str());
    return;
  }
  std::printf("      %-28s %-5s %10.1f ms %10.0f MiB\n", cost.model.c_str(),
              cost.precision.c_str(), cost.milliseconds, cost.peak_mib);
}

nlohmann::json ToJson(const Check& check) {
  return {{"group", check.group},         {"name", check.name},
          {"precision", check.precision}, {"error", check.error},
          {"limit", check.limit},         {"fault", check.fault},
          {"passed", check.passed()}};
}

nlohmann::json ToJson(const StepCost& cost) {
  return {{"model", cost.model},
          {"precision", cost.precision},
          {"milliseconds", cost.milliseconds},
          {"peak_mib", cost.peak_mib},
          {"fault", cost.fault}};
}

// The costs of each model in each precision that the device has.
absl::StatusOr<std::vector<StepCost>> MeasureTraining(
    const at::Device& device) {
  MIR_ASSIGN_OR_RETURN(const std::vector<int64_t> size, Sizes());
  std::vector<StepCost> costs;
  for (const std::string& model : models::RegisteredModels()) {
    for (const Precision precision :
         {Precision::kFloat32, Precision::kFloat16, Precision::kBFloat16}) {
      std::string warning;
      const auto runnable =
          precision::RunnablePrecision(precision, device, &warning);
      if (!runnable.ok() || *runnable != precision) continue;
      costs.push_back(MeasureStepCost(model, absl::GetFlag(FLAGS_config), size,
                                      precision, device,
                                      absl::GetFlag(FLAGS_steps)));
      Show(costs.back());
    }
  }
  return costs;
}

absl::Status WriteJson(const nlohmann::json& results) {
  const std::string path = absl::GetFlag(FLAGS_json);
  if (path.empty()) return absl::OkStatus();
  std::ofstream file(path);
  file << results.dump(2) << "\n";
  file.close();
  if (file) return absl::OkStatus();
  return WithExitCode(
      absl::PermissionDeniedError(absl::StrCat("cannot write ", path)),
      launch::kEnvironment);
}

absl::Status CheckDevice(const distributed::Context& context) {
  MIR_ASSIGN_OR_RETURN(const std::vector<std::string> parts,
                       Parts(context.world.size));
  const bool shows = distributed::IsMainProcess(context);
  nlohmann::json results = {{"device", context.device.str()},
                            {"ranks", context.world.size},
                            {"checks", nlohmann::json::array()},
                            {"training", nlohmann::json::array()}};
  int failed = 0;
  for (const std::string& part : parts) {
    if (part == "training") {
      MIR_ASSIGN_OR_RETURN(const std::vector<StepCost> costs,
                           MeasureTraining(context.device));
      for (const StepCost& cost : costs) {
        results["training"].push_back(ToJson(cost));
      }
      continue;
    }
    for (const Check& check : RunChecks(part, context)) {
      failed += check.passed() ? 0 : 1;
      if (shows) Show(check);
      results["checks"].push_back(ToJson(check));
    }
  }
  MIR_ASSIGN_OR_RETURN(const double failed_anywhere,
                       distributed::AllReduceSum(context, failed));
  results["failed"] = failed_anywhere;
  if (shows) MIR_RETURN_IF_ERROR(WriteJson(results));
  if (failed_anywhere == 0) return absl::OkStatus();
  return WithExitCode(
      absl::InternalError(absl::StrCat(failed_anywhere, " checks failed")),
      launch::kOther);
}

absl::Status Run() {
  MIR_RETURN_IF_ERROR(Sizes().status());
  if (absl::GetFlag(FLAGS_steps) < 1) {
    return absl::InvalidArgumentError("--steps must be at least 1");
  }
  MIR_ASSIGN_OR_RETURN(const distributed::DeviceKind device, Device());
  distributed::InitOptions options;
  options.device = device;
  MIR_ASSIGN_OR_RETURN(distributed::Context context,
                       distributed::InitDistributed(options));
  const absl::Status checked = distributed::CatchCollective(
      context, [&] { return CheckDevice(context); });
  distributed::Cleanup(context);
  return checked;
}

}  // namespace
}  // namespace mir::tools

int main(int argc, char** argv) {
  return mir::tools::RunCommand(argc, argv, mir::tools::kUsage,
                                mir::tools::Run);
}
