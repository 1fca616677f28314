#include "tools/train/runner.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "mir/base/exit_status.h"
#include "mir/base/status_macros.h"
#include "mir/launch/cpus.h"
#include "mir/launch/error_file.h"
#include "mir/launch/exit_codes.h"
#include "mir/launch/process_state.h"
#include "mir/launch/reserved_port.h"
#include "mir/launch/spawn.h"
#include "mir/launch/supervisor.h"
#include "mir/launch/worker_contract.h"
#include "mir/launch/working_directory.h"
#include "tools/train/console.h"
#include "tools/train/devices.h"
#include "tools/train/event_log.h"
#include "tools/train/junit.h"
#include "tools/train/nodes.h"
#include "tools/train/options.h"
#include "tools/train/plan.h"
#include "tools/train/restarts.h"
#include "tools/train/run_files.h"
#include "tools/train/worker_program.h"

namespace mir::tools {
namespace {

namespace fs = std::filesystem;
using launch::Outcome;
using launch::StopReason;
using launch::Stream;
using launch::WorkerReport;
using Mood = Console::Mood;

constexpr int kTailLines = 20;

std::string Seconds(absl::Duration duration) {
  const double seconds = absl::ToDoubleSeconds(duration);
  if (seconds < 60) return absl::StrFormat("%.1fs", seconds);
  return absl::FormatDuration(absl::Trunc(duration, absl::Seconds(1)));
}

std::string SignalName(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name == nullptr ? absl::StrCat("signal ", signal)
                         : absl::StrCat("SIG", name);
}

// "rank 3" or "ranks 0, 2-5".
std::string Ranks(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) {
      ++last;
    }
    parts.push_back(last == i ? absl::StrCat(ranks[i])
                              : absl::StrCat(ranks[i], "-", ranks[last]));
    i = last + 1;
  }
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                      absl::StrJoin(parts, ", "));
}

std::string Workers(int count) {
  return absl::StrCat(count, count == 1 ? " process" : " processes");
}

// "exited with code 11 (a loss that is not finite)", "was ended by SIGSEGV".
std::string HowItEnded(const WorkerReport& worker) {
  if (!worker.ended) return "cannot be ended";
  if (WIFSIGNALED(worker.wait_status)) {
    return absl::StrCat("was ended by ",
                        SignalName(WTERMSIG(worker.wait_status)));
  }
  const int code = WEXITSTATUS(worker.wait_status);
  const absl::string_view meaning = launch::ExitCodeMeaning(code);
  return absl::StrCat(
      "exited with code ", code,
      code <= 1 || meaning.empty() ? "" : absl::StrCat(" (", meaning, ")"));
}

std::string AtStep(const WorkerReport& worker) {
  return worker.step < 0 ? "" : absl::StrCat(" at step ", worker.step);
}

// "step 12, train" or "no step yet".
std::string Place(const WorkerReport& worker) {
  if (worker.step < 0) return worker.ready ? "no step yet" : "not ready";
  return absl::StrCat("step ", worker.step, worker.phase.empty() ? "" : ", ",
                      worker.phase);
}

std::vector<int> BehindOf(const std::vector<WorkerReport>& workers) {
  std::vector<int> behind;
  for (const WorkerReport& worker : workers) {
    if (worker.behind) behind.push_back(worker.rank);
  }
  return behind;
}

absl::string_view NameOf(StopReason reason) {
  switch (reason) {
    case StopReason::kNone:
      return "none";
    case StopReason::kFailure:
      return "failure";
    case StopReason::kLeftEarly:
      return "left_early";
    case StopReason::kStopped:
      return "stopped";
    case StopReason::kSignal:
      return "signal";
    case StopReason::kTimeout:
      return "timeout";
    case StopReason::kInitTimeout:
      return "init_timeout";
    case StopReason::kHang:
      return "hang";
    case StopReason::kElsewhere:
      return "elsewhere";
  }
  return "";
}

// A word of a command line, for a shell.
std::string Quoted(const std::string& word) {
  constexpr absl::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
      "_-+=./:,@%";
  if (!word.empty() &&
      word.find_first_not_of(kPlain.data(), 0, kPlain.size()) == word.npos) {
    return word;
  }
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

// How a worker ended, for programs.
nlohmann::json EndOf(const WorkerReport& worker) {
  nlohmann::json end = {{"rank", worker.rank},
                        {"stopped_by_runner", worker.signalled},
                        {"seconds", absl::ToDoubleSeconds(worker.lived)}};
  if (!worker.ended) {
    end["stuck"] = true;
  } else if (WIFSIGNALED(worker.wait_status)) {
    end["signal"] = SignalName(WTERMSIG(worker.wait_status));
  } else {
    end["code"] = WEXITSTATUS(worker.wait_status);
  }
  if (worker.step >= 0) end["step"] = worker.step;
  return end;
}

// How a worker ended, for a build server. A stop that was asked for is none of
// the worker's failures.
JunitCase CaseOf(const WorkerReport& worker, const Outcome& outcome) {
  JunitCase report;
  report.name = absl::StrCat("rank ", worker.rank);
  report.seconds = absl::ToDoubleSeconds(worker.lived);
  const int code = launch::ExitCodeOfWaitStatus(worker.wait_status);
  if (worker.rank == outcome.root_cause || worker.behind || !worker.ended) {
    report.result = JunitCase::Result::kFailed;
    report.message = worker.behind ? "no progress" : HowItEnded(worker);
    report.output = worker.stderr_tail;
  } else if (worker.signalled || code == launch::kStopped) {
    report.result = JunitCase::Result::kSkipped;
    report.message = "stopped by the runner";
  } else if (code != launch::kOk) {
    report.result = JunitCase::Result::kError;
    report.message = HowItEnded(worker);
    report.output = worker.stderr_tail;
  }
  return report;
}

// Shows what happens while the workers run.
class Narrator : public launch::Observer {
 public:
  // `handed_over` is closed once rank 0 has it; null where it has not.
  Narrator(Console* console, EventLog* events, const RunnerOptions& options,
           const Plan& plan, std::string attempt_folder,
           launch::ReservedPort* handed_over, Nodes* nodes)
      : console_(console),
        events_(events),
        options_(options),
        processes_(plan.placement.processes),
        attempt_folder_(std::move(attempt_folder)),
        handed_over_(handed_over),
        nodes_(nodes) {}

  void Started(const WorkerReport& worker) override {
    events_->Add("started", {{"rank", worker.rank}, {"pid", worker.pid}});
    if (++started_ == processes_) events_->Enter("rendezvous");
    if (worker.rank == 0 && handed_over_ != nullptr) handed_over_->Close();
  }
  void Output(int rank, Stream stream, absl::string_view bytes) override {
    console_->Output(rank, stream, bytes);
  }
  void OutputEnded(int rank, Stream stream) override {
    console_->OutputEnded(rank, stream);
  }
  bool Takes(int rank, Stream stream) override {
    return console_->Takes(rank, stream);
  }
  void Status(const WorkerReport& worker,
              const launch::StatusLine& line) override {
    switch (line.event) {
      case launch::StatusLine::Event::kReady:
        ready_.push_back(worker.rank);
        events_->Add("ready", {{"rank", worker.rank}});
        if (ready_.size() == processes_) events_->Enter("running");
        break;
      case launch::StatusLine::Event::kCheckpoint:
        events_->Add(
            "checkpoint",
            {{"rank", worker.rank}, {"step", line.step}, {"path", line.path}});
        break;
      default:
        break;
    }
  }

  void Ended(const WorkerReport& worker) override {
    const int code = launch::ExitCodeOfWaitStatus(worker.wait_status);
    events_->Add("ended", EndOf(worker));
    if (nodes_ != nullptr && !worker.signalled && code != launch::kOk) {
      nodes_->TellStop(
          absl::StrCat("rank ", worker.rank, " ", HowItEnded(worker)));
    }
    if (code != launch::kOk && code != launch::kStopped && !worker.signalled) {
      console_->Say(
          "Failed",
          absl::StrCat("rank ", worker.rank, ": ", HowItEnded(worker),
                       " after ", Seconds(worker.lived), AtStep(worker)),
          Mood::kBad);
    }
  }

  void Stopping(StopReason reason, int signal, absl::Duration patience,
                const std::vector<int>& ranks) override {
    std::string why;
    std::string task = "end";
    events_->Enter(reason == StopReason::kSignal ? "drain" : "fail");
    if (nodes_ != nullptr) {
      nodes_->TellStop(reason == StopReason::kSignal
                           ? absl::StrCat("stopped by ", SignalName(signal))
                           : absl::StrCat("stopped: ", NameOf(reason)));
    }
    nlohmann::json event = {{"reason", NameOf(reason)},
                            {"ranks", ranks},
                            {"seconds", absl::ToDoubleSeconds(patience)}};
    if (signal != 0) event["signal"] = SignalName(signal);
    events_->Add("stopping", event);
    switch (reason) {
      case StopReason::kNone:
      case StopReason::kFailure:
      case StopReason::kHang:
        break;
      case StopReason::kElsewhere:
        why = absl::StrCat(nodes_->stop_why(), "; ");
        break;
      case StopReason::kLeftEarly:
        why = "others left before the training was over; ";
        break;
      case StopReason::kStopped:
        why = "others were told to stop; ";
        break;
      case StopReason::kSignal:
        task = "save and end";
        break;
      case StopReason::kTimeout:
        why = absl::StrCat("--timeout ", absl::FormatDuration(options_.timeout),
                           " is over; ");
        break;
      case StopReason::kInitTimeout:
        why = absl::StrCat(Missing(ranks), " not ready after --init-timeout ",
                           absl::FormatDuration(options_.init_timeout), "; ");
        break;
    }
    const bool again = std::exchange(stopping_, true);
    std::string then;
    if (signal == SIGINT) {
      then = again ? " (Ctrl-C again kills)" : " (Ctrl-C again: at once)";
    }
    console_->Say("Stopping",
                  absl::StrCat(why, Ranks(ranks), ": up to ", Seconds(patience),
                               " to ", again ? "end" : task, then),
                  Mood::kWarning);
  }

  void Hanging(const std::vector<WorkerReport>& workers) override {
    if (nodes_ != nullptr) nodes_->TellStop("no progress");
    events_->Enter("hang");
    nlohmann::json places = nlohmann::json::array();
    for (const WorkerReport& worker : workers) {
      if (worker.ended) continue;
      places.push_back(
          {{"rank", worker.rank},
           {"behind", worker.behind},
           {"state", worker.state},
           {"step", worker.step},
           {"phase", worker.phase},
           {"silent_seconds", absl::ToDoubleSeconds(worker.silent)}});
    }
    events_->Add("hang", {{"ranks", places}});
    console_->Say("Hanging",
                  absl::StrCat("no sign of life within --hang-timeout ",
                               absl::FormatDuration(options_.hang_timeout),
                               "; writing the stacks of all processes"),
                  Mood::kBad);
  }

  void StatusAsked(const std::vector<WorkerReport>& workers) override {
    for (const WorkerReport& worker : workers) {
      if (worker.ended) {
        console_->Line(
            absl::StrCat("  rank ", worker.rank, ": ", HowItEnded(worker)));
        continue;
      }
      const launch::ProcessState state = launch::ProcessStateOf(worker.pid);
      console_->Line(absl::StrCat(
          "  rank ", worker.rank, ": ", Place(worker), "; told ",
          Seconds(worker.silent), " ago; process ", worker.pid, ", ",
          launch::Describe(state), ", ", state.resident_bytes >> 20, " MiB",
          worker.checkpoint.empty()
              ? ""
              : absl::StrCat("; step ", worker.checkpoint_step, " is saved")));
    }
  }

  void Killing(const std::vector<int>& ranks) override {
    events_->Add("killing", {{"ranks", ranks}});
    console_->Say("Killing", Ranks(ranks), Mood::kBad);
  }

  void LogFault(const std::string& path, const std::string& why) override {
    console_->Warning(absl::StrCat("cannot write ", path, ": ", why,
                                   "; the run goes on without"));
  }

  void AddPollFds(std::vector<pollfd>* fds) override {
    console_->AddPollFds(fds);
    if (nodes_ != nullptr) nodes_->AddPollFds(fds);
  }
  bool WantsStop() override { return nodes_ != nullptr && nodes_->stop_told(); }
  void Step() override {
    if (nodes_ != nullptr) nodes_->Step();
    console_->Flush();
    if (console_->OutputGone() && !std::exchange(output_gone_, true)) {
      console_->Warning(absl::StrCat(
          "nobody reads the output any more; the run goes on, its logs are in ",
          attempt_folder_));
    }
  }

 private:
  // Which of `ranks` are not ready.
  std::string Missing(const std::vector<int>& ranks) const {
    std::vector<int> missing;
    for (const int rank : ranks) {
      if (std::find(ready_.begin(), ready_.end(), rank) == ready_.end()) {
        missing.push_back(rank);
      }
    }
    return absl::StrCat(Ranks(missing), missing.size() == 1 ? " is" : " are");
  }

  Console* const console_;
  EventLog* const events_;
  const RunnerOptions& options_;
  const size_t processes_;
  const std::string attempt_folder_;
  launch::ReservedPort* const handed_over_;
  Nodes* const nodes_;  // Null on a single node.
  size_t started_ = 0;
  std::vector<int> ready_;
  bool stopping_ = false;
  bool output_gone_ = false;
};

// Whether the worker's arguments ask to go on with an earlier run.
bool Resumes(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--resume") return true;
  }
  return false;
}

// A program that cannot be started.
absl::Status WithSpawnExitCode(absl::Status status) {
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return WithExitCode(std::move(status), launch::kNotFound);
    case absl::StatusCode::kPermissionDenied:
      return WithExitCode(std::move(status), launch::kNotExecutable);
    case absl::StatusCode::kFailedPrecondition:
      return WithExitCode(std::move(status), launch::kEnvironment);
    default:
      return WithExitCode(std::move(status), launch::kRunnerFault);
  }
}

class Runner {
 public:
  Runner(RunnerOptions options, launch::Env env)
      : options_(std::move(options)),
        env_(std::move(env)),
        console_({options_.color, options_.timestamps, options_.console,
                  options_.format},
                 env_) {}

  int Run() {
    const absl::StatusOr<int> code = TryAndReport();
    if (!code.ok()) {
      console_.Error(code.status().message());
      console_.Finish();
      return ExitCodeOf(code.status());
    }
    console_.Finish();
    return *code;
  }

 private:
  // With the report of --junit, which is there from the beginning.
  absl::StatusOr<int> TryAndReport();
  absl::StatusOr<int> Try();
  absl::StatusOr<int> HelpOfWorker();
  absl::Status DryRun();
  // The code of a worker that found something wrong, else 0.
  absl::StatusOr<int> CheckArguments(const launch::Env& common);
  absl::StatusOr<int> Start(RunFiles* files, const launch::Env& common);
  // Lets the nodes of a run on several meet.
  absl::Status MeetNodes();
  // Settles with the other nodes which attempt begins. False where the run is
  // over, as node 0 said; `verdict` then tells how.
  absl::StatusOr<bool> BeginAttempt(RunFiles* files, NodeEnd* verdict);
  absl::StatusOr<Outcome> RunAttempt(RunFiles* files, const launch::Env& common,
                                     absl::Duration timeout);
  // How the attempt ended on all nodes; on others than node 0 on this alone.
  NodeEnd EndOfAttempt(const Outcome& outcome);
  void ShowVerdict(const Outcome& outcome, const NodeEnd& verdict,
                   absl::Duration took);
  void WritePlan(const RunFiles& files);
  void WriteSummary(const RunFiles& files, const Outcome& outcome,
                    const std::string& cause, absl::Duration took);
  // "plan.json", and "plan.node-1.json" on another node than 0, which may share
  // the folder.
  std::string NodeFile(absl::string_view stem,
                       absl::string_view extension) const;
  void Summarize(const Outcome& outcome, absl::Duration took);
  void ShowHang(const Outcome& outcome, const std::string& checkpoint);
  // Why the run ended, in a few words.
  std::string Cause(const Outcome& outcome) const;
  void ShowRootCause(const Outcome& outcome);

  const RunnerOptions options_;
  const launch::Env env_;
  Console console_;
  EventLog events_;
  bool events_opened_ = false;
  bool events_fault_told_ = false;
  Plan plan_;
  absl::optional<Restarts> restarts_;
  std::unique_ptr<Nodes> nodes_;  // Null on a single node.
  Outcome last_;                  // Of the last attempt that began here.
};

absl::StatusOr<int> Runner::TryAndReport() {
  if (options_.junit.empty() || options_.dry_run || options_.help_worker) {
    return Try();
  }
  const std::string suite = options_.worker.empty()
                                ? absl::StrCat("train ", options_.model)
                                : fs::path(options_.worker).filename().string();
  JunitCase whole;
  whole.name = "run";
  whole.result = JunitCase::Result::kError;
  whole.message = "the runner ended before the run did";
  if (const absl::Status begun =
          WriteJunitReport(options_.junit, suite, {whole});
      !begun.ok()) {
    return WithExitCode(begun, launch::kEnvironment);
  }
  const absl::Time start = absl::Now();
  const absl::StatusOr<int> code = Try();
  whole.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  if (code.ok()) {
    whole.result = *code == launch::kOk        ? JunitCase::Result::kPassed
                   : *code == launch::kStopped ? JunitCase::Result::kSkipped
                                               : JunitCase::Result::kFailed;
    whole.message = last_.workers.empty() ? absl::StrCat("exit code ", *code)
                                          : Cause(last_);
  } else {
    whole.message = std::string(code.status().message());
  }
  std::vector<JunitCase> cases = {whole};
  for (const WorkerReport& worker : last_.workers) {
    cases.push_back(CaseOf(worker, last_));
  }
  if (const absl::Status written =
          WriteJunitReport(options_.junit, suite, cases);
      !written.ok()) {
    console_.Warning(written.message());
  }
  return code;
}

absl::StatusOr<int> Runner::Try() {
  if (options_.help_worker) return HelpOfWorker();
  // A misspelt model is said before what this machine lacks.
  MIR_RETURN_IF_ERROR(DescribeWorker(options_.worker, options_.model,
                                     /*cuda=*/false, env_)
                          .status());

  const int cpus = launch::AllowedCpus();
  launch::Env device_env = env_;
  for (const auto& [name, value] : options_.env) device_env[name] = value;
  const absl::StatusOr<Placement> placement = Place(
      options_.processes, [&] { return FindCudaDevices(device_env); }, cpus);
  if (!placement.ok()) {
    return WithExitCode(placement.status(), launch::kEnvironment);
  }
  plan_.placement = *placement;
  plan_.threads =
      ThreadsOf(options_, device_env, plan_.placement.processes, cpus);
  plan_.isolate_gpus = options_.isolate_gpus;
  plan_.init_timeout_seconds =
      static_cast<int>(std::ceil(absl::ToDoubleSeconds(options_.init_timeout)));
  plan_.collective_timeout_seconds = static_cast<int>(
      std::ceil(absl::ToDoubleSeconds(options_.collective_timeout)));
  if (options_.dry_run) {
    MIR_RETURN_IF_ERROR(DryRun());
    return launch::kOk;
  }
  MIR_ASSIGN_OR_RETURN(plan_.worker,
                       FindWorker(options_.worker, options_.model,
                                  plan_.placement.cuda, env_, &console_));
  plan_.keeps_contract = launch::KeepsWorkerContract(plan_.worker);
  if (plan_.keeps_contract) {
    for (const std::string& argument : options_.worker_arguments) {
      if (absl::StartsWith(argument, "--resume=")) {
        return WithExitCode(
            absl::InvalidArgumentError(absl::StrCat(
                "--resume takes no value, got ", argument,
                "\nhelp: name the run to go on with by --out DIR --resume")),
            launch::kArguments);
      }
    }
  }
  plan_.max_restarts = options_.max_restarts;
  plan_.node = options_.node;
  plan_.nodes = options_.nodes;
  if (options_.nodes > 1) plan_.master_addr = options_.master_addr;
  const launch::Env common = CommonEnv(plan_, options_, env_);

  std::string out = options_.out;
  if (out.empty() && Resumes(options_.worker_arguments)) {
    std::error_code none;
    const fs::path latest = fs::read_symlink("runs/latest", none);
    if (none) {
      // The worker says what is wrong with that.
      MIR_ASSIGN_OR_RETURN(const int code, CheckArguments(common));
      if (code != launch::kOk) return code;
    } else {
      out = "runs" / latest;
    }
  }
  absl::StatusOr<RunFiles> files = RunFiles::Make(out);
  if (!files.ok()) return WithExitCode(files.status(), launch::kEnvironment);
  plan_.run_folder = files->folder();
  plan_.run_id = options_.run_id.empty() ? files->name() : options_.run_id;
  const absl::StatusOr<int> checked = CheckArguments(common);
  if (!checked.ok() || *checked != launch::kOk) {
    files->Discard();
    return checked;
  }
  return Start(&*files, common);
}

absl::StatusOr<int> Runner::HelpOfWorker() {
  // Any build has the same help.
  MIR_ASSIGN_OR_RETURN(
      const std::string worker,
      FindWorker(options_.worker, options_.model,
                 options_.processes.kind == Processes::Kind::kGpus, env_,
                 &console_));
  console_.Finish();
  launch::Command command;
  command.argv = {worker, "--help"};
  command.env = env_;
  const absl::StatusOr<int> status = launch::RunAndWait(command);
  if (!status.ok()) return WithSpawnExitCode(status.status());
  return launch::ExitCodeOfWaitStatus(*status);
}

absl::Status Runner::DryRun() {
  MIR_ASSIGN_OR_RETURN(plan_.worker,
                       DescribeWorker(options_.worker, options_.model,
                                      plan_.placement.cuda, env_));
  plan_.keeps_contract =
      options_.worker.empty() || launch::KeepsWorkerContract(options_.worker);
  plan_.run_folder = options_.out.empty() ? "runs/<id>" : options_.out;
  std::vector<std::string> line = WorkerCommandLine(
      plan_, options_.worker_arguments, !options_.out.empty());
  line.erase(line.begin());
  console_.Say("Program", plan_.worker);
  console_.Say("Arguments", absl::StrJoin(line, " "));
  console_.Say(
      "Processes",
      absl::StrCat(plan_.placement.processes, " on ",
                   plan_.placement.cuda ? "GPUs" : "the CPU", ", ",
                   plan_.threads, plan_.threads == 1 ? " thread" : " threads",
                   " each"));
  console_.Say("Folder", plan_.run_folder);
  console_.Say("Port", options_.master_port == 0
                           ? "a free one"
                           : absl::StrCat(options_.master_port));
  for (const auto& [name, value] : options_.env) {
    console_.Say("Variable", absl::StrCat(name, "=", value));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> Runner::CheckArguments(const launch::Env& common) {
  if (!plan_.keeps_contract) return launch::kOk;
  launch::Command command;
  command.argv = WorkerCommandLine(plan_, options_.worker_arguments,
                                   !options_.out.empty());
  command.argv.push_back("--check-args");
  command.env = common;
  const absl::StatusOr<launch::Captured> captured =
      launch::RunAndCapture(command);
  if (!captured.ok()) return WithSpawnExitCode(captured.status());
  const int code = launch::ExitCodeOfWaitStatus(captured->wait_status);
  if (code == launch::kOk) return code;
  console_.Line(absl::StripTrailingAsciiWhitespace(captured->output));
  if (WIFSIGNALED(captured->wait_status)) {
    console_.Error(absl::StrCat(plan_.worker, " was ended by ",
                                SignalName(WTERMSIG(captured->wait_status)),
                                " while it checked its arguments"));
  }
  return code;
}

// Every node's end may take as long as its processes are given.
absl::Duration PatienceWithNodes(const RunnerOptions& options) {
  return options.grace + 2 * options.kill_wait + absl::Seconds(20);
}

absl::Status Runner::MeetNodes() {
  if (options_.nodes == 1) return absl::OkStatus();
  Nodes::Self self;
  self.node = options_.node;
  self.nodes = options_.nodes;
  self.processes = plan_.placement.processes;
  const std::vector<std::string> line = WorkerCommandLine(
      plan_, options_.worker_arguments, !options_.out.empty());
  // Programs may lie elsewhere on another machine.
  self.command = absl::StrCat(fs::path(line.front()).filename().string(), " ",
                              absl::StrJoin(line.begin() + 1, line.end(), " "),
                              ", --max-restarts ", options_.max_restarts);
  console_.Say("Meeting",
               absl::StrCat(options_.nodes, " nodes at ", options_.master_addr,
                            ":", options_.master_port));
  console_.Flush();
  absl::StatusOr<std::unique_ptr<Nodes>> nodes =
      Nodes::Meet(self, options_.master_addr, options_.master_port + 1,
                  options_.init_timeout);
  if (!nodes.ok()) {
    return WithExitCode(nodes.status(), absl::IsDeadlineExceeded(nodes.status())
                                            ? launch::kTimeout
                                            : launch::kEnvironment);
  }
  nodes_ = *std::move(nodes);
  return absl::OkStatus();
}

absl::StatusOr<bool> Runner::BeginAttempt(RunFiles* files, NodeEnd* verdict) {
  Nodes::Attempt attempt;
  attempt.world = plan_.placement.processes;
  if (plan_.node == 0) {
    if (const absl::Status begun = files->BeginAttempt(); !begun.ok()) {
      return WithExitCode(begun, launch::kEnvironment);
    }
    attempt.number = files->attempt();
    attempt.restarts = plan_.restarts;
    attempt.resume = plan_.resume;
    if (nodes_ != nullptr) {
      absl::StatusOr<Nodes::Attempt> agreed = nodes_->Begin(attempt);
      if (!agreed.ok()) return WithExitCode(agreed.status(), launch::kPeer);
      attempt = *agreed;
    }
  } else {
    absl::StatusOr<Nodes::Word> word = nodes_->AwaitWord();
    if (!word.ok()) {
      return WithExitCode(word.status(),
                          absl::IsFailedPrecondition(word.status())
                              ? launch::kEnvironment
                              : launch::kPeer);
    }
    if (!word->begins) {
      *verdict = word->verdict;
      return false;
    }
    attempt = word->attempt;
    plan_.restarts = attempt.restarts;
    plan_.resume = attempt.resume;
    if (const absl::Status joined = files->JoinAttempt(attempt.number);
        !joined.ok()) {
      return WithExitCode(joined, launch::kEnvironment);
    }
  }
  plan_.first_rank = attempt.first_rank;
  plan_.world = attempt.world;
  if (const absl::Status added =
          files->AddRanks(plan_.first_rank, plan_.placement.processes);
      !added.ok()) {
    return WithExitCode(added, launch::kEnvironment);
  }
  return true;
}

NodeEnd Runner::EndOfAttempt(const Outcome& outcome) {
  NodeEnd end;
  end.node = plan_.node;
  end.exit_code = outcome.exit_code;
  end.kind = FailureKindOf(outcome, plan_.keeps_contract);
  end.elsewhere = outcome.reason == StopReason::kElsewhere;
  end.cause = Cause(outcome);
  if (nodes_ == nullptr) return end;
  const std::vector<NodeEnd> ends =
      nodes_->Ended(end, PatienceWithNodes(options_));
  if (plan_.node != 0) return end;
  end = Verdict(ends);
  if (!nodes_->complete()) end.kind = FailureKind::kNone;
  return end;
}

void Runner::ShowVerdict(const Outcome& outcome, const NodeEnd& verdict,
                         absl::Duration took) {
  if (verdict.node == plan_.node || verdict.exit_code == launch::kOk ||
      verdict.exit_code == launch::kStopped) {
    Summarize(outcome, took);
    return;
  }
  console_.Error(absl::StrCat("node ", verdict.node, ": ", verdict.cause,
                              "\nhelp: the logs are in ", plan_.attempt_folder,
                              " there"));
}

absl::StatusOr<int> Runner::Start(RunFiles* files, const launch::Env& common) {
  std::set<FailureKind> kinds = {FailureKind::kSignal, FailureKind::kPeer,
                                 FailureKind::kPreempt, FailureKind::kHang};
  if (!plan_.keeps_contract) kinds.insert(FailureKind::kError);
  restarts_.emplace(options_.max_restarts, options_.restart_on.value_or(kinds));
  const absl::Time start = absl::Now();
  if (const absl::Status met = MeetNodes(); !met.ok()) {
    files->Discard();
    return met;
  }
  Outcome outcome;
  while (true) {
    NodeEnd verdict;
    MIR_ASSIGN_OR_RETURN(const bool begins, BeginAttempt(files, &verdict));
    Restarts::Decision decision;
    if (begins) {
      const absl::Duration timeout = std::max(
          options_.timeout - (absl::Now() - start), absl::ZeroDuration());
      MIR_ASSIGN_OR_RETURN(outcome, RunAttempt(files, common, timeout));
      verdict = EndOfAttempt(outcome);
      decision = restarts_->After(outcome, verdict.kind);
      if (plan_.node != 0) continue;  // Node 0 decides.
    }
    if (!decision.restart) {
      if (nodes_ != nullptr && plan_.node == 0) nodes_->Finish(verdict);
      console_.TakeSaid();
      if (verdict.exit_code == launch::kOk ||
          verdict.exit_code == launch::kStopped) {
        outcome.exit_code = verdict.exit_code;
      }
      ShowVerdict(outcome, verdict, absl::Now() - start);
      if (!decision.why_not.empty()) {
        console_.Line(absl::StrCat("  no restart: ", decision.why_not));
      }
      outcome.exit_code = verdict.exit_code;
      WriteSummary(*files, outcome, verdict.cause, absl::Now() - start);
      return verdict.exit_code;
    }
    plan_.restarts = restarts_->count();
    plan_.resume = plan_.keeps_contract && restarts_->checkpoint_step() >= 0;
    events_.Enter("restart");
    nlohmann::json event = {{"number", plan_.restarts},
                            {"cause", verdict.cause}};
    if (plan_.resume) event["from_step"] = restarts_->checkpoint_step();
    events_.Add("restart", event);
    console_.Say(
        "Restarting",
        absl::StrCat(Workers(plan_.world),
                     plan_.resume ? absl::StrCat(" from step ",
                                                 restarts_->checkpoint_step())
                                  : "",
                     " (restart ", plan_.restarts, " of ", restarts_->most(),
                     "): ", verdict.cause),
        Mood::kWarning);
  }
}

absl::StatusOr<Outcome> Runner::RunAttempt(RunFiles* files,
                                           const launch::Env& common,
                                           absl::Duration timeout) {
  absl::optional<launch::ReservedPort> port;
  plan_.master_port = options_.master_port;
  if (plan_.node == 0) {
    using Port = launch::ReservedPort;
    absl::StatusOr<Port> bound = Port::Bind(
        options_.master_port,
        plan_.keeps_contract ? Port::Use::kHandOver : Port::Use::kBindByName,
        plan_.nodes > 1 ? Port::Addresses::kAll : Port::Addresses::kLoopback);
    if (!bound.ok()) {
      if (plan_.restarts == 0) files->Discard();
      return WithExitCode(
          options_.master_port == 0
              ? bound.status()
              : absl::FailedPreconditionError(absl::StrCat(
                    "--master-port ", options_.master_port, ": ",
                    bound.status().message(),
                    "\nhelp: leave --master-port out to take a free one")),
          launch::kEnvironment);
    }
    port.emplace(*std::move(bound));
    plan_.master_port = port->port();
  }
  files->LinkLatest();
  plan_.generation = files->attempt();
  plan_.attempt_folder = fs::absolute(files->attempt_folder());
  WritePlan(*files);
  // Not before: a run that never begins leaves no folder.
  if (!std::exchange(events_opened_, true)) {
    events_ = EventLog(
        absl::StrCat(files->folder(), "/", NodeFile("events", ".jsonl")),
        [this](absl::string_view line) { console_.Event(line); });
  }
  events_.Add("attempt", {{"number", plan_.generation},
                          {"processes", plan_.placement.processes},
                          {"first_rank", plan_.first_rank},
                          {"port", plan_.master_port}});
  events_.Enter("spawn");

  const std::vector<int> allowed_cpus = launch::AllowedCpuNumbers();
  const auto numa_nodes = launch::NumaNodes("/sys/devices/system/node");
  std::vector<launch::WorkerSpec> workers;
  for (int local = 0; local < plan_.placement.processes; ++local) {
    const int rank = plan_.first_rank + local;
    launch::WorkerSpec worker;
    worker.rank = rank;
    worker.command.argv = WorkerCommandLine(plan_, options_.worker_arguments,
                                            !options_.out.empty());
    worker.command.env = RankEnv(plan_, local, common);
    worker.command.cpus =
        launch::CpusOf(options_.bind, local, plan_.placement.processes,
                       allowed_cpus, numa_nodes);
    worker.log_folder = RankFolder(plan_, rank);
    if (rank == 0 && plan_.keeps_contract) {
      worker.command.env["MIR_STORE_FD"] = absl::StrCat(port->fd());
      worker.command.kept_fds.push_back(port->fd());
    }
    for (const auto& [stream, name] :
         {std::make_pair(Stream::kStdout, "MIR_STDOUT_COLUMNS"),
          std::make_pair(Stream::kStderr, "MIR_STDERR_COLUMNS")}) {
      if (const int columns = console_.WorkerColumns(rank, stream)) {
        worker.command.env[name] = absl::StrCat(columns);
      }
    }
    workers.push_back(std::move(worker));
  }
  console_.Say(
      "Running",
      absl::StrCat(Workers(plan_.placement.processes), " on ",
                   plan_.placement.cuda ? "GPUs" : "the CPU", ", ",
                   plan_.threads, plan_.threads == 1 ? " thread" : " threads",
                   " each; logs in ", files->attempt_folder()));
  console_.Flush();

  launch::SupervisorOptions supervision;
  supervision.grace = options_.grace;
  supervision.kill_wait = options_.kill_wait;
  supervision.timeout = timeout;
  supervision.init_timeout = options_.init_timeout;
  supervision.hang_timeout = options_.hang_timeout;
  Narrator narrator(&console_, &events_, options_, plan_,
                    files->attempt_folder(),
                    port.has_value() && plan_.keeps_contract ? &*port : nullptr,
                    nodes_.get());
  absl::StatusOr<Outcome> outcome =
      launch::Supervise(workers, supervision, &narrator);
  if (!outcome.ok()) return WithSpawnExitCode(outcome.status());
  last_ = *outcome;
  events_.Enter("reap");
  plan_.attempt_folder = files->attempt_folder();  // To show.
  if (!events_.fault().empty() && !std::exchange(events_fault_told_, true)) {
    console_.Warning(absl::StrCat("cannot write ", files->folder(),
                                  "/events.jsonl: ", events_.fault()));
  }
  return outcome;
}

void Runner::WritePlan(const RunFiles& files) {
  const std::vector<std::string> line = WorkerCommandLine(
      plan_, options_.worker_arguments, !options_.out.empty());
  const nlohmann::json plan = {
      {"run", plan_.run_id},
      {"attempt", plan_.generation},
      {"command", line},
      {"directory", fs::current_path().string()},
      {"processes", plan_.placement.processes},
      {"device", plan_.placement.cuda ? "cuda" : "cpu"},
      {"threads", plan_.threads},
      {"master_port", plan_.master_port},
      {"restarts", plan_.restarts},
      {"max_restarts", plan_.max_restarts},
      {"node", plan_.node},
      {"nodes", plan_.nodes},
      {"first_rank", plan_.first_rank},
      {"world", plan_.world},
      {"runner_pid", getpid()},
  };
  if (const absl::Status written =
          files.Write(NodeFile("plan", ".json"), plan.dump(2) + "\n");
      !written.ok()) {
    console_.Warning(written.message());
  }
}

std::string Runner::NodeFile(absl::string_view stem,
                             absl::string_view extension) const {
  return plan_.node == 0 ? absl::StrCat(stem, extension)
                         : absl::StrCat(stem, ".node-", plan_.node, extension);
}

void Runner::WriteSummary(const RunFiles& files, const Outcome& outcome,
                          const std::string& cause, absl::Duration took) {
  nlohmann::json ranks = nlohmann::json::array();
  for (const WorkerReport& worker : outcome.workers) {
    ranks.push_back(EndOf(worker));
  }
  nlohmann::json summary = {
      {"run", plan_.run_id},
      {"exit_code", outcome.exit_code},
      {"reason", NameOf(outcome.reason)},
      {"cause", cause},
      {"seconds", absl::ToDoubleSeconds(took)},
      {"attempt", plan_.generation},
      {"restarts", restarts_->count()},
      {"ranks", ranks},
  };
  if (outcome.root_cause >= 0) summary["root_cause"] = outcome.root_cause;
  if (restarts_->checkpoint_step() >= 0) {
    summary["checkpoint"] = {{"step", restarts_->checkpoint_step()},
                             {"path", restarts_->checkpoint()}};
  }
  events_.Add("done",
              {{"exit_code", outcome.exit_code}, {"cause", Cause(outcome)}});
  events_.Enter("done");
  const std::string text =
      summary.dump(2, ' ', /*ensure_ascii=*/false,
                   nlohmann::json::error_handler_t::replace) +
      "\n";
  for (const auto& [name, content] :
       {std::make_pair(NodeFile("summary", ".json"), text),
        std::make_pair(NodeFile("summary", ".txt"), console_.TakeSaid())}) {
    if (const absl::Status written = files.Write(name, content);
        !written.ok()) {
      console_.Warning(written.message());
    }
  }
}

std::string Runner::Cause(const Outcome& outcome) const {
  for (const WorkerReport& worker : outcome.workers) {
    if (worker.rank != outcome.root_cause) continue;
    return absl::StrCat(
        "rank ", worker.rank, " ",
        launch::ExitCodeOfWaitStatus(worker.wait_status) == launch::kOk
            ? "left early"
            : HowItEnded(worker),
        AtStep(worker));
  }
  if (outcome.reason == StopReason::kHang) {
    const std::vector<int> behind = BehindOf(outcome.workers);
    return behind.empty()
               ? "no progress"
               : absl::StrCat("no progress, ", Ranks(behind),
                              behind.size() == 1 ? " is" : " are", " behind");
  }
  if (outcome.exit_code == launch::kOk) return "finished";
  const absl::string_view meaning = launch::ExitCodeMeaning(outcome.exit_code);
  return meaning.empty() ? absl::StrCat("code ", outcome.exit_code)
                         : std::string(meaning);
}

void Runner::Summarize(const Outcome& outcome, absl::Duration took) {
  const std::string resume =
      absl::StrCat("help: go on with --resume --out ", plan_.run_folder);
  std::vector<int> left;
  std::vector<int> stuck;
  for (const WorkerReport& worker : outcome.workers) {
    if (worker.left_processes) left.push_back(worker.rank);
    if (!worker.ended) stuck.push_back(worker.rank);
  }
  const std::string checkpoint =
      restarts_->checkpoint_step() < 0
          ? ""
          : absl::StrCat("; step ", restarts_->checkpoint_step(),
                         " is saved in ", restarts_->checkpoint());
  if (!left.empty()) {
    console_.Warning(absl::StrCat(
        Ranks(left), " left processes behind; they have been ended"));
  }
  if (!stuck.empty()) {
    console_.Warning(absl::StrCat(
        Ranks(stuck),
        " cannot be killed and may still be there; the system waits for a "
        "device or a file system"));
  }
  if (outcome.root_cause >= 0) {
    ShowRootCause(outcome);
    return;
  }
  if (outcome.reason == StopReason::kHang) {
    ShowHang(outcome, checkpoint);
    return;
  }
  switch (outcome.exit_code) {
    case launch::kOk:
      console_.Say("Finished", absl::StrCat(Workers(outcome.workers.size()),
                                            " in ", Seconds(took)));
      return;
    case launch::kStopped:
      console_.Say("Stopped", absl::StrCat("after ", Seconds(took), checkpoint),
                   Mood::kWarning);
      // Our workers say it too, on rank 0.
      if (plan_.keeps_contract && !console_.Shows(0)) console_.Line(resume);
      return;
    case launch::kTimeout:
      console_.Error(absl::StrCat(
          outcome.reason == StopReason::kTimeout
              ? "the run did not end within --timeout"
              : "the processes did not find each other within --init-timeout",
          checkpoint, "\nhelp: the logs are in ", plan_.attempt_folder));
      return;
    default:
      console_.Error(absl::StrCat(
          outcome.reason == StopReason::kSignal
              ? absl::StrCat("stopped by ", SignalName(outcome.signal),
                             " before a checkpoint was complete")
              : "some processes did not stop when others did",
          checkpoint, "\nhelp: the logs are in ", plan_.attempt_folder));
  }
}

void Runner::ShowHang(const Outcome& outcome, const std::string& checkpoint) {
  const std::vector<int> behind = BehindOf(outcome.workers);
  console_.Error(absl::StrCat(
      "no progress within --hang-timeout ",
      absl::FormatDuration(options_.hang_timeout),
      behind.empty()
          ? ": all processes stand at the same place"
          : absl::StrCat(": ", Ranks(behind),
                         behind.size() == 1 ? " is" : " are", " behind"),
      checkpoint));
  for (const WorkerReport& worker : outcome.workers) {
    console_.Line(absl::StrCat(
        worker.behind ? "> " : "  ", "rank ", worker.rank, ": ", Place(worker),
        "; told ", Seconds(worker.silent), " before",
        worker.state.empty()
            ? ""
            : absl::StrCat("; its process was ", worker.state)));
  }
  console_.Line(absl::StrCat("help: the stacks are in ", plan_.attempt_folder,
                             "/rank-*/stack.txt"));
}

void Runner::ShowRootCause(const Outcome& outcome) {
  const WorkerReport* root = nullptr;
  std::vector<int> stopped;
  std::vector<int> victims;
  for (const WorkerReport& worker : outcome.workers) {
    if (worker.rank == outcome.root_cause) {
      root = &worker;
    } else if (worker.signalled) {
      stopped.push_back(worker.rank);
    } else if (const int code =
                   launch::ExitCodeOfWaitStatus(worker.wait_status);
               worker.ended && code != launch::kOk &&
               code != launch::kStopped) {
      victims.push_back(worker.rank);
    }
  }
  const bool left_early =
      launch::ExitCodeOfWaitStatus(root->wait_status) == launch::kOk;
  std::string message =
      absl::StrCat("rank ", root->rank, " ",
                   left_early ? "left early: it exited with code 0 before the "
                                "training was over"
                              : HowItEnded(*root),
                   " after ", Seconds(root->lived), AtStep(*root));
  if (const auto error = launch::ReadErrorFile(
          absl::StrCat(RankFolder(plan_, root->rank), "/error.json"));
      error.ok()) {
    absl::StrAppend(&message, ": ", error->message);
  }
  console_.Error(message);
  if (!victims.empty()) {
    console_.Line(absl::StrCat("  after it ", Ranks(victims), " failed"));
  }
  if (!stopped.empty()) {
    console_.Line(absl::StrCat("  then ", Ranks(stopped),
                               stopped.size() == 1 ? " was" : " were",
                               " stopped by the runner"));
  }
  std::vector<std::string> lines =
      absl::StrSplit(absl::StripTrailingAsciiWhitespace(root->stderr_tail),
                     absl::ByAnyChar("\n\r"), absl::SkipEmpty());
  if (!lines.empty()) {
    console_.Line(absl::StrCat("  the end of its standard error:"));
    for (size_t i = lines.size() - std::min<size_t>(lines.size(), kTailLines);
         i < lines.size(); ++i) {
      console_.Line(absl::StrCat("  | ", lines[i]));
    }
  }
  console_.Line(absl::StrCat("  its logs: ", RankFolder(plan_, root->rank)));
  std::vector<std::string> words;
  for (const std::string& word : WorkerCommandLine(
           plan_, options_.worker_arguments, !options_.out.empty())) {
    words.push_back(Quoted(word));
  }
  console_.Line(
      absl::StrCat("  the program alone: ", absl::StrJoin(words, " ")));
  if (WIFSIGNALED(root->wait_status) &&
      WTERMSIG(root->wait_status) == SIGKILL) {
    console_.Line(
        "help: the system kills so when memory runs out; dmesg would say it");
  }
}

}  // namespace

int RunTraining(const std::vector<std::string>& arguments, launch::Env env) {
  const std::string folder = launch::Get(env, "BUILD_WORKING_DIRECTORY");
  absl::StatusOr<RunnerOptions> options = ParseRunnerOptions(arguments);
  if (!options.ok()) {
    Console console({}, env);
    console.Error(absl::StrCat(options.status().message(),
                               "\nhelp: --help lists the options"));
    console.Finish();
    return launch::kArguments;
  }
  if (options->help) {
    const std::string help = RunnerHelp();
    std::fwrite(help.data(), 1, help.size(), stdout);
    return std::fflush(stdout) == 0 ? launch::kOk : launch::kOther;
  }
  if (const absl::Status entered = launch::EnterCallersDirectory(env);
      !entered.ok()) {
    Console console({}, env);
    console.Error(std::string(entered.message()));
    console.Finish();
    return launch::kEnvironment;
  }
  if (!folder.empty()) env["PWD"] = folder;
  return Runner(*std::move(options), std::move(env)).Run();
}

}  // namespace mir::tools
