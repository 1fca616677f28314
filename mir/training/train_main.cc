#include "mir/training/train_main.h"

#include <ATen/Parallel.h>
#include <malloc.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <iostream>
#include <random>
#include <utility>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "mir/base/catch_torch.h"
#include "mir/base/command_line.h"
#include "mir/base/exit_status.h"
#include "mir/base/status_macros.h"
#include "mir/data/pair.h"
#include "mir/distributed/collectives.h"
#include "mir/distributed/init.h"
#include "mir/launch/env.h"
#include "mir/launch/error_file.h"
#include "mir/launch/exit_codes.h"
#include "mir/launch/lifeline.h"
#include "mir/launch/stack_dump.h"
#include "mir/launch/status_line.h"
#include "mir/launch/stop_flag.h"
#include "mir/launch/working_directory.h"
#include "mir/launch/world.h"
#include "mir/models/model_list.h"
#include "mir/precision/autocast.h"
#include "mir/precision/precision.h"
#include "mir/training/flags.h"
#include "mir/training/learner.h"
#include "mir/training/objective.h"
#include "mir/training/run_folder.h"
#include "mir/training/sources.h"
#include "mir/training/trainer.h"
#include "mir/training/training_state.h"

ABSL_DECLARE_FLAG(std::string, out);
ABSL_DECLARE_FLAG(bool, resume);

namespace mir::training {
namespace {

// A step frees and takes the same large tensors again; giving them back to the
// system in between costs a page fault per 4 KiB.
void KeepMemory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
}

// A new folder's name: when it was made, and what keeps two runs apart.
std::string NewRunFolder() {
  return absl::StrCat(
      "runs/",
      absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::UTCTimeZone()), "-",
      absl::StrFormat("%04x", std::random_device()() & 0xFFFF));
}

// Lets runs/latest name `folder`, a new one in runs/.
void LinkLatest(const std::string& folder) {
  namespace fs = std::filesystem;
  const fs::path path(folder);
  std::error_code ignored;
  fs::create_directory("runs", ignored);
  const fs::path temporary = absl::StrCat("runs/.latest.", getpid());
  fs::create_directory_symlink(path.filename(), temporary, ignored);
  fs::rename(temporary, "runs/latest", ignored);
  fs::remove(temporary, ignored);
}

// Whether torchrun starts a run anew that is in --out already: it does so with
// the same command line, where our runner says --resume. It counts restarts on
// each machine for itself, so that a run's id tells more, where it was given
// one.
bool IsRestart(const launch::Env& env) {
  if (absl::GetFlag(FLAGS_resume) || absl::GetFlag(FLAGS_out).empty() ||
      launch::Has(env, "MIR_GENERATION") ||
      !launch::Has(env, "TORCHELASTIC_RUN_ID")) {
    return false;
  }
  const RunFolder folder(absl::GetFlag(FLAGS_out));
  const absl::StatusOr<nlohmann::json> config = folder.ReadConfig();
  if (!config.ok() || !std::filesystem::exists(folder.latest())) return false;
  const std::string count = launch::Get(env, "TORCHELASTIC_RESTART_COUNT");
  const std::string id = launch::Get(env, "TORCHELASTIC_RUN_ID");
  return (!count.empty() && count != "0") ||
         (id != "none" && config->is_object() && config->contains("run_id") &&
          (*config)["run_id"] == id);
}

// Lets a resumed run take up the options it had, where none are given anew, and
// says in `changes` which of those are others than it had.
absl::Status TakeUpRecordedOptions(const CommandLine& line,
                                   std::vector<std::string>* changes) {
  if (IsRestart(launch::CurrentEnv())) absl::SetFlag(&FLAGS_resume, true);
  if (!absl::GetFlag(FLAGS_resume)) return absl::OkStatus();
  if (absl::GetFlag(FLAGS_out).empty()) {
    // Not the link itself, which a run that begins meanwhile turns elsewhere.
    std::error_code none;
    const std::filesystem::path latest =
        std::filesystem::read_symlink("runs/latest", none);
    absl::SetFlag(&FLAGS_out, none ? "runs/latest" : "runs" / latest);
  }
  const RunFolder folder(absl::GetFlag(FLAGS_out));
  absl::StatusOr<nlohmann::json> config = folder.ReadConfig();
  if (!config.ok() || !std::filesystem::exists(folder.latest())) {
    return WithExitCode(
        absl::NotFoundError(absl::StrCat(
            "nothing to resume: ", folder.path(),
            " has no config.json with checkpoints/latest.pth; name the run's "
            "folder with --out, or begin a new run in another folder")),
        launch::kCheckpoint);
  }
  std::map<std::string, std::string> recorded;
  if (config->contains("options") && (*config)["options"].is_object()) {
    for (const auto& [name, value] : (*config)["options"].items()) {
      if (value.is_string()) recorded[name] = value.get<std::string>();
    }
  }
  // Those that belong to one process or one machine, not to the run.
  for (const char* name :
       {"out", "resume", "check_args", "device", "threads"}) {
    recorded.erase(name);
  }
  const std::map<std::string, std::string> present = FlagValues();
  for (const std::string& name : line.given) {
    const auto was = recorded.find(name);
    if (was == recorded.end() || present.at(name) == was->second) continue;
    const auto shown = [](const std::string& value) {
      return value.empty() ? "none" : value;
    };
    changes->push_back(absl::StrCat(
        "the run had --", absl::StrReplaceAll(name, {{"_", "-"}}), " ",
        shown(was->second), ", it goes on with ", shown(present.at(name))));
  }
  return WithExitCode(SetFlagsNotGiven(recorded, line), launch::kCheckpoint);
}

distributed::DeviceKind DeviceKindOf(const std::string& name) {
  if (name == "cpu") return distributed::DeviceKind::kCpu;
  if (name == "cuda") return distributed::DeviceKind::kCuda;
  return distributed::DeviceKind::kAuto;
}

// Everything that can be found wrong before the peers are met.
struct Plan {
  TrainCommand command;
  ModelChoice choice;
  Sources sources;
  std::vector<std::string> changes;  // Of a resumed run's options.
};

// The network is made for the data's sizes where the command line names none:
// their number makes it 2-D or 3-D.
absl::Status TakeSizesFromData(Plan& plan) {
  for (const std::string& change : plan.command.overrides) {
    if (absl::StartsWith(change, "img_size=")) return absl::OkStatus();
  }
  const absl::StatusOr<data::Pair> pair =
      plan.sources.training->Get(/*epoch=*/0, /*index=*/0);
  if (!pair.ok()) return WithExitCode(pair.status(), launch::kData);
  plan.choice.configuration["img_size"] = pair->fixed.sizes().slice(1).vec();
  return absl::OkStatus();
}

absl::StatusOr<Plan> MakePlan(const CommandLine& line, const std::string& model,
                              const models::ModelFactory& factory) {
  Plan plan;
  MIR_RETURN_IF_ERROR(TakeUpRecordedOptions(line, &plan.changes));
  MIR_ASSIGN_OR_RETURN(const models::ModelDescription description,
                       models::FindModel(model));
  MIR_ASSIGN_OR_RETURN(plan.command,
                       TrainCommandFromFlags(line, description.training));
  TrainOptions& options = plan.command.options;
  MIR_RETURN_IF_ERROR(Objective::Make(options).status());

  absl::StatusOr<Sources> sources = MakeSources(options);
  if (!sources.ok()) return WithExitCode(sources.status(), launch::kData);
  plan.sources = *std::move(sources);

  MIR_ASSIGN_OR_RETURN(plan.choice.configuration,
                       models::ModelConfig(model, plan.command.configuration,
                                           plan.command.overrides));
  MIR_RETURN_IF_ERROR(TakeSizesFromData(plan));
  plan.choice.name = model;
  plan.choice.factory = factory;
  return plan;
}

// The rest of what --check-args promises, on the one process that checks.
absl::Status CheckRun(const Plan& plan) {
  const TrainOptions& options = plan.command.options;
  MIR_ASSIGN_OR_RETURN(
      const distributed::Context context,
      distributed::InitDistributed(
          {.world = launch::World(), .device = DeviceKindOf(options.device)}));
  MIR_ASSIGN_OR_RETURN(const precision::Precision precision,
                       precision::ParsePrecision(options.precision));
  std::string warning;
  MIR_RETURN_IF_ERROR(WithExitCode(
      precision::RunnablePrecision(precision, context.device, &warning)
          .status(),
      launch::kEnvironment));
  if (!options.out.empty()) {
    MIR_RETURN_IF_ERROR(RunFolder(options.out).Prepare(options.resume));
  }
  MIR_ASSIGN_OR_RETURN(const std::shared_ptr<models::RegistrationModel> model,
                       plan.choice.factory(plan.choice.configuration));
  MIR_RETURN_IF_ERROR(FitToOptions(*model, options));
  if (options.resume) {
    return LoadWeights(RunFolder(options.out).latest(), *model);
  }
  return absl::OkStatus();
}

// What must be the same on every rank, in words.
std::string Fingerprint(const Plan& plan) {
  std::string text = absl::StrCat(
      "model ", plan.choice.name, " ", plan.choice.configuration.dump(),
      ", training pairs ", plan.sources.training->size(), ", validation pairs ",
      plan.sources.validation ? plan.sources.validation->size() : 0);
  for (const auto& [name, value] : FlagValues()) {
    if (name == "threads" || name == "loader_threads" || name == "check_args") {
      continue;  // Each process's own affair.
    }
    absl::StrAppend(&text, ", --", name, "=", value);
  }
  return text;
}

absl::Status TrainOnThisRank(const CommandLine& line, const std::string& model,
                             const models::ModelFactory& factory,
                             const launch::StatusWriter& status) {
  const launch::Env env = launch::CurrentEnv();
  absl::StatusOr<launch::World> world = launch::WorldFromEnv(env);
  if (!world.ok()) return WithExitCode(world.status(), launch::kEnvironment);
  status.Hello(world->rank);

  MIR_ASSIGN_OR_RETURN(Plan plan, MakePlan(line, model, factory));
  TrainOptions& options = plan.command.options;
  if (plan.command.check_args) return CheckRun(plan);
  if (options.threads > 0) {
    at::set_num_threads(static_cast<int>(options.threads));
  }
  MIR_ASSIGN_OR_RETURN(
      distributed::Context context,
      distributed::InitDistributed({.world = *world,
                                    .device = DeviceKindOf(options.device),
                                    .fingerprint = Fingerprint(plan)}));
  absl::Status result = [&]() -> absl::Status {
    if (options.out.empty()) {
      MIR_ASSIGN_OR_RETURN(
          options.out, distributed::BroadcastString(context, NewRunFolder()));
      if (distributed::IsMainProcess(context)) LinkLatest(options.out);
    }
    status.Ready();
    std::vector<std::string> notes = plan.changes;
    notes.insert(notes.end(), plan.sources.notes.begin(),
                 plan.sources.notes.end());
    return Train(options, plan.choice,
                 {.context = context,
                  .training = plan.sources.training,
                  .validation = plan.sources.validation,
                  .notes = notes,
                  .stop_requested = launch::StopRequested,
                  .status = &status,
                  .recorded_flags = FlagValues(),
                  .run_id = launch::Get(env, "TORCHELASTIC_RUN_ID")});
  }();
  distributed::Cleanup(context);
  return result;
}

}  // namespace

int TrainMain(int argc, char** argv, const std::string& model,
              const models::ModelFactory& factory) {
  KeepMemory();
  std::signal(SIGPIPE, SIG_IGN);  // Whoever reads may leave; training goes on.
  const launch::Env env = launch::CurrentEnv();
  launch::HandleStopSignals();
  launch::HandleStackRequests(env);
  launch::HoldLifeline(env);
  launch::ReportErrorOnTerminate(env);
  const launch::StatusWriter status(env);

  if (const absl::Status entered = launch::EnterCallersDirectory(env);
      !entered.ok()) {
    std::cerr << "error: " << entered.message() << std::endl;
    return launch::kEnvironment;
  }
  const absl::StatusOr<CommandLine> line = ParseCommandLine(argc, argv);
  if (line.ok() && line->help) {
    std::cout << CommandLineHelp(absl::StrCat(
        "Usage: train_", model, " [options]\n\nTrains ", model,
        " on this process, or on all that torchrun, a scheduler or "
        "`bazel run //tools:train` started."));
    return launch::kOk;
  }
  const absl::Status result = line.ok() ? CatchTorch([&] {
    return TrainOnThisRank(*line, model, factory, status);
  })
                                        : line.status();
  const int code = ExitCodeOf(result);
  if (!result.ok() && code != launch::kStopped) {
    std::cerr << "error: " << result.message() << std::endl;
    if (const absl::Status reported =
            launch::ReportError(env, std::string(result.message()));
        !reported.ok()) {
      std::cerr << "warning: " << reported.message() << std::endl;
    }
  }
  status.Bye(code);
  return code;
}

}  // namespace mir::training
