#include "tools/train/plan.h"

#include <algorithm>
#include <initializer_list>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace mir::tools {
namespace {

using Kind = Processes::Kind;

std::string CudaDevicesAreVisible(int count) {
  return count == 1 ? "1 CUDA device is visible"
                    : absl::StrCat(count, " CUDA devices are visible");
}

absl::Status NoDevices(const std::string& asked, const std::string& why,
                       int cpu_processes) {
  return absl::FailedPreconditionError(
      absl::StrCat(asked, ", but 0 CUDA devices are visible (", why,
                   ")\nhelp: use --cpu-procs ", cpu_processes,
                   " to run the same program on the CPU with gloo"));
}

absl::Status TooFewDevices(const Processes& processes,
                           const CudaDevices& devices) {
  std::string list;
  for (int i = 0; i < devices.count(); ++i) {
    absl::StrAppend(&list, i == 0 ? "" : ", ", i, ": ", devices.names[i]);
  }
  return absl::FailedPreconditionError(absl::StrCat(
      processes.as_given, ", but only ", CudaDevicesAreVisible(devices.count()),
      " (", list, ")\nhelp: use --gpus ", devices.count(),
      ", or let CUDA_VISIBLE_DEVICES name more"));
}

}  // namespace

absl::StatusOr<Placement> Place(
    const Processes& processes,
    const std::function<CudaDevices()>& find_devices, int allowed_cpus) {
  switch (processes.kind) {
    case Kind::kCpu:
      return Placement{processes.count, /*cuda=*/false};
    case Kind::kAllCpus:
      return Placement{allowed_cpus, /*cuda=*/false};
    default:
      break;
  }
  const CudaDevices devices = find_devices();
  if (devices.count() == 0) {
    switch (processes.kind) {
      case Kind::kEither:
        return Placement{processes.count, /*cuda=*/false};
      case Kind::kGpuOrCpu:
        return Placement{allowed_cpus, /*cuda=*/false};
      case Kind::kGpus:
        return NoDevices(processes.as_given, devices.why_none, processes.count);
      default:
        return NoDevices(processes.as_given.empty()
                             ? "without --cpu-procs every GPU gets a process"
                             : processes.as_given,
                         devices.why_none, std::min(allowed_cpus, 2));
    }
  }
  if (processes.count > devices.count()) {
    return TooFewDevices(processes, devices);
  }
  return Placement{processes.count > 0 ? processes.count : devices.count(),
                   /*cuda=*/true};
}

std::vector<std::string> WorkerCommandLine(
    const Plan& plan, const std::vector<std::string>& arguments,
    bool out_given) {
  std::vector<std::string> line = {plan.worker};
  if (plan.keeps_contract) {
    // First, so that the user's own options win.
    line.push_back(plan.placement.cuda ? "--device=cuda" : "--device=cpu");
    if (!plan.run_folder.empty()) {
      line.push_back(absl::StrCat("--out=", plan.run_folder));
    }
    if (plan.resume && std::find(arguments.begin(), arguments.end(),
                                 "--resume") == arguments.end()) {
      line.push_back("--resume");
    }
  }
  line.insert(line.end(), arguments.begin(), arguments.end());
  if (!plan.keeps_contract && out_given) {
    // Last: before them it may be an interpreter's option.
    line.insert(line.end(), {"--out", plan.run_folder});
  }
  return line;
}

launch::Env CommonEnv(const Plan& plan, const RunnerOptions& options,
                      const launch::Env& env) {
  launch::Env common = env;
  for (const char* name :
       {// This program's own files, by Bazel.
        "RUNFILES_DIR", "RUNFILES_MANIFEST_FILE", "RUNFILES_MANIFEST_ONLY",
        "JAVA_RUNFILES", "PYTHON_RUNFILES",
        // Places in another run; for --check-args too.
        "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK",
        "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME",
        "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
        "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE",
        "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MIR_STATUS_FD",
        "MIR_LIFELINE_FD", "MIR_STACK_FILE", "MIR_STORE_FD", "MIR_GENERATION",
        "MIR_INIT_TIMEOUT", "MIR_COLLECTIVE_TIMEOUT", "MIR_STDOUT_COLUMNS",
        "MIR_STDERR_COLUMNS"}) {
    common.erase(name);
  }
  common["OMP_NUM_THREADS"] = absl::StrCat(plan.threads);
  if (!plan.placement.cuda) common["CUDA_VISIBLE_DEVICES"] = "";
  if (!options.interface.empty()) {
    common["GLOO_SOCKET_IFNAME"] = options.interface;
    common["NCCL_SOCKET_IFNAME"] = options.interface;
  }
  for (const auto& [name, value] : options.env) common[name] = value;
  return common;
}

launch::Env RankEnv(const Plan& plan, int local_rank,
                    const launch::Env& common) {
  launch::Env env = common;
  const int rank = plan.first_rank + local_rank;
  const std::string size =
      absl::StrCat(plan.world > 0 ? plan.world : plan.placement.processes);
  env["RANK"] = absl::StrCat(rank);
  env["LOCAL_RANK"] = absl::StrCat(local_rank);
  env["WORLD_SIZE"] = size;
  env["LOCAL_WORLD_SIZE"] = absl::StrCat(plan.placement.processes);
  env["GROUP_RANK"] = absl::StrCat(plan.node);
  env["GROUP_WORLD_SIZE"] = absl::StrCat(plan.nodes);
  env["ROLE_NAME"] = "default";
  env["ROLE_RANK"] = absl::StrCat(rank);
  env["ROLE_WORLD_SIZE"] = size;
  env["MASTER_ADDR"] = plan.master_addr;
  env["MASTER_PORT"] = absl::StrCat(plan.master_port);
  env["TORCHELASTIC_RUN_ID"] = plan.run_id;
  env["TORCHELASTIC_RESTART_COUNT"] = absl::StrCat(plan.restarts);
  env["TORCHELASTIC_MAX_RESTARTS"] = absl::StrCat(plan.max_restarts);
  env["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  env["TORCHELASTIC_ERROR_FILE"] = RankFolder(plan, rank) + "/error.json";
  if (plan.isolate_gpus && plan.placement.cuda) {
    // Names of those that are visible now, or their numbers.
    const std::vector<std::string> visible = absl::StrSplit(
        launch::Get(env, "CUDA_VISIBLE_DEVICES"), ',', absl::SkipWhitespace());
    env["CUDA_VISIBLE_DEVICES"] =
        visible.empty() ? absl::StrCat(local_rank) : visible.at(local_rank);
  }
  env["MIR_GENERATION"] = absl::StrCat(plan.generation);
  // A little more than the runner waits, which can say who is missing.
  env["MIR_INIT_TIMEOUT"] = absl::StrCat(plan.init_timeout_seconds + 10);
  env["MIR_COLLECTIVE_TIMEOUT"] = absl::StrCat(plan.collective_timeout_seconds);
  return env;
}

std::string RankFolder(const Plan& plan, int rank) {
  return absl::StrFormat("%s/rank-%05d", plan.attempt_folder, rank);
}

int ThreadsOf(const RunnerOptions& options, const launch::Env& env,
              int processes, int allowed_cpus) {
  if (options.threads > 0) return options.threads;
  int threads = 0;
  if (absl::SimpleAtoi(launch::Get(env, "OMP_NUM_THREADS"), &threads) &&
      threads > 0) {
    return threads;
  }
  return std::max(1, allowed_cpus / processes);
}

}  // namespace mir::tools
