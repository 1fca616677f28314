#include "tools/train/options.h"

#include <algorithm>
#include <functional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "mir/base/status_macros.h"

namespace mir::tools {
namespace {

using Kind = Processes::Kind;

absl::StatusOr<int> ParseInt(absl::string_view text, int least, int most) {
  int value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < least || value > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("wants a whole number from ", least, " to ", most));
  }
  return value;
}

constexpr int kMostProcesses = 4096;

absl::Status SetProcesses(RunnerOptions& options, Processes processes) {
  if (!options.processes.as_given.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("contradicts ", options.processes.as_given,
                     "; give one of --gpus, --cpu-procs, --nproc-per-node"));
  }
  options.processes = std::move(processes);
  return absl::OkStatus();
}

absl::Status SetGpus(RunnerOptions& options, const std::string& value) {
  Processes processes;
  processes.as_given = absl::StrCat("--gpus ", value);
  if (value != "all") {
    processes.kind = Kind::kGpus;
    const absl::StatusOr<int> count = ParseInt(value, 1, kMostProcesses);
    if (!count.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "wants a number from 1 to ", kMostProcesses, ", or all"));
    }
    processes.count = *count;
  }
  return SetProcesses(options, processes);
}

absl::Status SetCpuProcs(RunnerOptions& options, const std::string& value) {
  Processes processes;
  processes.kind = Kind::kCpu;
  processes.as_given = absl::StrCat("--cpu-procs ", value);
  MIR_ASSIGN_OR_RETURN(processes.count, ParseInt(value, 1, kMostProcesses));
  return SetProcesses(options, processes);
}

absl::Status SetNprocPerNode(RunnerOptions& options, const std::string& value) {
  Processes processes;
  processes.as_given = absl::StrCat("--nproc-per-node ", value);
  if (value == "gpu") {
    processes.kind = Kind::kAllGpus;
  } else if (value == "cpu") {
    processes.kind = Kind::kAllCpus;
  } else if (value == "auto") {
    processes.kind = Kind::kGpuOrCpu;
  } else {
    processes.kind = Kind::kEither;
    const absl::StatusOr<int> count = ParseInt(value, 1, kMostProcesses);
    if (!count.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "wants a number from 1 to ", kMostProcesses, ", gpu, cpu or auto"));
    }
    processes.count = *count;
  }
  return SetProcesses(options, processes);
}

absl::Status SetEndpoint(RunnerOptions& options, const std::string& value) {
  const size_t colon = value.rfind(':');
  const absl::Status wanted =
      absl::InvalidArgumentError("wants HOST:PORT, such as node0:29500");
  if (colon == std::string::npos || colon == 0) return wanted;
  const absl::StatusOr<int> port =
      ParseInt(absl::string_view(value).substr(colon + 1), 0, 65535);
  if (!port.ok()) return wanted;
  options.master_addr = value.substr(0, colon);
  options.master_port = *port;
  return absl::OkStatus();
}

absl::Status CheckNodes(const RunnerOptions& options) {
  if (options.node >= options.nodes) {
    return absl::InvalidArgumentError(
        absl::StrCat("--node-rank ", options.node, " is outside --nnodes ",
                     options.nodes, "; nodes count from 0"));
  }
  if (options.nodes == 1) return absl::OkStatus();
  if (options.master_addr.empty() || options.master_port == 0 ||
      options.master_port == 65535) {
    return absl::InvalidArgumentError(
        "--nnodes wants --master-addr and --master-port (below 65535) of node "
        "0, the same on all nodes");
  }
  if (options.out.empty()) {
    return absl::InvalidArgumentError(
        "--nnodes wants --out, the same on all nodes");
  }
  return absl::OkStatus();
}

absl::Status SetConsole(RunnerOptions& options, const std::string& value) {
  const absl::Status wanted = absl::InvalidArgumentError(
      "wants rank0, all, none, or ranks such as 0,2-3");
  options.console = ConsoleRanks();
  options.console.ranges.clear();
  if (value == "all") {
    options.console.all = true;
  } else if (value == "rank0") {
    options.console.ranges = {{0, 0}};
  } else if (value != "none") {
    for (const absl::string_view part : absl::StrSplit(value, ',')) {
      const std::vector<absl::string_view> ends =
          absl::StrSplit(part, absl::MaxSplits('-', 1));
      int first = 0;
      int last = 0;
      if (!absl::SimpleAtoi(ends.front(), &first) || first < 0 ||
          !absl::SimpleAtoi(ends.back(), &last) || last < first) {
        return wanted;
      }
      options.console.ranges.emplace_back(first, last);
    }
  }
  return absl::OkStatus();
}

absl::Status SetColor(RunnerOptions& options, const std::string& value) {
  if (value == "auto") {
    options.color = ColorMode::kAuto;
  } else if (value == "always") {
    options.color = ColorMode::kAlways;
  } else if (value == "never") {
    options.color = ColorMode::kNever;
  } else {
    return absl::InvalidArgumentError("wants auto, always or never");
  }
  return absl::OkStatus();
}

absl::Status SetFormat(RunnerOptions& options, const std::string& value) {
  if (value == "human") {
    options.format = OutputFormat::kHuman;
  } else if (value == "json") {
    options.format = OutputFormat::kJson;
  } else {
    return absl::InvalidArgumentError("wants human or json");
  }
  return absl::OkStatus();
}

absl::Status SetBind(RunnerOptions& options, const std::string& value) {
  if (value == "none") {
    options.bind = launch::CpuBinding::kNone;
  } else if (value == "cores") {
    options.bind = launch::CpuBinding::kCores;
  } else if (value == "numa") {
    options.bind = launch::CpuBinding::kNuma;
  } else {
    return absl::InvalidArgumentError("wants none, cores or numa");
  }
  return absl::OkStatus();
}

absl::Status AddEnv(RunnerOptions& options, const std::string& value) {
  const size_t equals = value.find('=');
  if (equals == std::string::npos || equals == 0) {
    return absl::InvalidArgumentError("wants NAME=VALUE");
  }
  options.env.emplace_back(value.substr(0, equals), value.substr(equals + 1));
  return absl::OkStatus();
}

// Of a duration that may not be zero.
absl::Status SetDuration(absl::Duration* duration, const std::string& value) {
  MIR_ASSIGN_OR_RETURN(*duration, ParseDuration(value));
  if (*duration == absl::ZeroDuration()) {
    return absl::InvalidArgumentError("wants more than 0");
  }
  return absl::OkStatus();
}

struct Option {
  const char* name;
  const char* value;  // What it takes, for the help; null for a switch.
  const char* help;
  std::function<absl::Status(RunnerOptions&, const std::string&)> set;
};

const std::vector<Option>& Options() {
  static const auto& options = *new std::vector<Option>{
      {"model", "NAME", "The model to train; default voxelmorph.",
       [](RunnerOptions& o, const std::string& v) {
         o.model = v;
         return absl::OkStatus();
       }},
      {"worker", "PATH", "A ready program to start instead of the model's.",
       [](RunnerOptions& o, const std::string& v) {
         o.worker = v;
         return absl::OkStatus();
       }},
      {"gpus", "N|all",
       "One process for each of N GPUs; default all that are visible.",
       SetGpus},
      {"cpu-procs", "N", "N processes on the CPU.", SetCpuProcs},
      {"nproc-per-node", "N|gpu|cpu|auto",
       "torchrun's: N processes, on GPUs where there are any, else on the CPU.",
       SetNprocPerNode},
      {"standalone", nullptr,
       "torchrun's: one machine, a free port; so it is in any case.",
       [](RunnerOptions&, const std::string&) { return absl::OkStatus(); }},
      {"no-python", nullptr,
       "torchrun's: the worker is a program; so it is in any case.",
       [](RunnerOptions&, const std::string&) { return absl::OkStatus(); }},
      {"out", "DIR",
       "Folder of the run, for its logs too; default a new one in runs/, which "
       "runs/latest then names. Passed on.",
       [](RunnerOptions& o, const std::string& v) {
         o.out = v;
         return absl::OkStatus();
       }},
      {"threads", "N",
       "CPU threads of each process (OMP_NUM_THREADS); default its share of "
       "the "
       "allowed CPUs.",
       [](RunnerOptions& o, const std::string& v) -> absl::Status {
         MIR_ASSIGN_OR_RETURN(o.threads, ParseInt(v, 1, 4096));
         return absl::OkStatus();
       }},
      {"bind", "HOW",
       "CPUs of each process: none (default: all), cores (an equal share, in "
       "order) or numa (a NUMA node).",
       SetBind},
      {"isolate-gpus", nullptr,
       "Lets each process see its own GPU alone (CUDA_VISIBLE_DEVICES).",
       [](RunnerOptions& o, const std::string&) {
         o.isolate_gpus = true;
         return absl::OkStatus();
       }},
      {"ifname", "NAME",
       "Network interface that gloo and NCCL use, such as eth0; default the "
       "one that leads to --master-addr.",
       [](RunnerOptions& o, const std::string& v) {
         o.interface = v;
         return absl::OkStatus();
       }},
      {"env", "NAME=VALUE",
       "Sets a variable for the processes; may be repeated.", AddEnv},
      {"nnodes", "N",
       "How many machines train together; start the runner on each. Default 1.",
       [](RunnerOptions& o, const std::string& v) -> absl::Status {
         const absl::StatusOr<int> nodes = ParseInt(v, 1, kMostProcesses);
         if (!nodes.ok()) {
           return absl::InvalidArgumentError(
               absl::StrCat("wants a fixed number from 1 to ", kMostProcesses));
         }
         o.nodes = *nodes;
         return absl::OkStatus();
       }},
      {"node-rank", "K", "Which of them this is, from 0; node 0 leads.",
       [](RunnerOptions& o, const std::string& v) -> absl::Status {
         MIR_ASSIGN_OR_RETURN(o.node, ParseInt(v, 0, kMostProcesses - 1));
         return absl::OkStatus();
       }},
      {"master-addr", "HOST", "Name or address of node 0's machine.",
       [](RunnerOptions& o, const std::string& v) {
         o.master_addr = v;
         return absl::OkStatus();
       }},
      {"rdzv-endpoint", "HOST:PORT",
       "torchrun's: --master-addr and --master-port in one.", SetEndpoint},
      {"rdzv-id", "ID", "torchrun's: the run's name for its processes.",
       [](RunnerOptions& o, const std::string& v) {
         o.run_id = v;
         return absl::OkStatus();
       }},
      {"rdzv-backend", "static",
       "torchrun's: nodes are fixed; so they are in any case.",
       [](RunnerOptions&, const std::string& v) {
         return v == "static" ? absl::OkStatus()
                              : absl::InvalidArgumentError(
                                    "wants static; give --nnodes, --node-rank, "
                                    "--master-addr and --master-port");
       }},
      {"master-port", "PORT",
       "Port where the processes meet; default 0, a free one. On several "
       "machines it must be given, and the next one is used too.",
       [](RunnerOptions& o, const std::string& v) -> absl::Status {
         MIR_ASSIGN_OR_RETURN(o.master_port, ParseInt(v, 0, 65535));
         return absl::OkStatus();
       }},
      {"init-timeout", "TIME",
       "How long the processes may take to find each other; default 120s.",
       [](RunnerOptions& o, const std::string& v) {
         return SetDuration(&o.init_timeout, v);
       }},
      {"timeout", "TIME", "Stops the whole run after this time; default none.",
       [](RunnerOptions& o, const std::string& v) {
         return SetDuration(&o.timeout, v);
       }},
      {"collective-timeout", "TIME",
       "How long one exchange between our programs' processes may take; "
       "default 600s.",
       [](RunnerOptions& o, const std::string& v) {
         return SetDuration(&o.collective_timeout, v);
       }},
      {"hang-timeout", "TIME",
       "How long a process that is ready may tell nothing before all are "
       "ended, with their stacks in stack.txt beside their logs; default 600s.",
       [](RunnerOptions& o, const std::string& v) {
         return SetDuration(&o.hang_timeout, v);
       }},
      {"max-restarts", "N",
       "How often to start all processes again after a failure, from the last "
       "checkpoint; default 0.",
       [](RunnerOptions& o, const std::string& v) -> absl::Status {
         MIR_ASSIGN_OR_RETURN(o.max_restarts, ParseInt(v, 0, 1'000'000));
         return absl::OkStatus();
       }},
      {"restart-on", "KINDS",
       "After which failures: some of signal, peer, preempt, hang, error. "
       "Default all but error, which is any other exit code; for programs that "
       "are not ours error too.",
       [](RunnerOptions& o, const std::string& v) -> absl::Status {
         MIR_ASSIGN_OR_RETURN(o.restart_on, ParseFailureKinds(v));
         return absl::OkStatus();
       }},
      {"grace", "TIME",
       "From asking a process to stop (SIGTERM) to killing it; default 30s.",
       [](RunnerOptions& o, const std::string& v) -> absl::Status {
         MIR_ASSIGN_OR_RETURN(o.grace, ParseDuration(v));
         return absl::OkStatus();
       }},
      {"kill-wait", "TIME",
       "What is left of that time after a second Ctrl-C, and from killing a "
       "process to giving it up; default 10s.",
       [](RunnerOptions& o, const std::string& v) -> absl::Status {
         MIR_ASSIGN_OR_RETURN(o.kill_wait, ParseDuration(v));
         return absl::OkStatus();
       }},
      {"console", "WHICH",
       "Whose output to show: rank0 (default), all, none, or ranks such as "
       "0,2-3. The logs have everything.",
       SetConsole},
      {"timestamps", nullptr, "Shows the time before each line.",
       [](RunnerOptions& o, const std::string&) {
         o.timestamps = true;
         return absl::OkStatus();
       }},
      {"color", "WHEN", "auto (default: on a terminal), always or never.",
       SetColor},
      {"format", "HOW",
       "What stands on standard output: human (default: the processes' lines) "
       "or json (an event a line, as in events.jsonl, the processes' lines "
       "among them).",
       SetFormat},
      {"junit", "FILE",
       "Writes a report for build servers: a test case for each process.",
       [](RunnerOptions& o, const std::string& v) {
         o.junit = v;
         return absl::OkStatus();
       }},
      {"dry-run", nullptr, "Shows what would be started, and starts nothing.",
       [](RunnerOptions& o, const std::string&) {
         o.dry_run = true;
         return absl::OkStatus();
       }},
      {"help", nullptr, "Shows this text.",
       [](RunnerOptions& o, const std::string&) {
         o.help = true;
         return absl::OkStatus();
       }},
      {"help-worker", nullptr, "Shows the options of the model's own program.",
       [](RunnerOptions& o, const std::string&) {
         o.help_worker = true;
         return absl::OkStatus();
       }},
  };
  return options;
}

// Options of torchrun's that have no equal here, and what to say instead.
struct ForeignOption {
  const char* name;
  const char* instead;
};
constexpr ForeignOption kTorchrunOptions[] = {
    {"tee", "--console all shows every rank, and the logs have everything"},
    {"redirects", "the logs of every rank are kept anyway; see --console"},
    {"log-dir", "logs are in the run's folder, --out"},
    {"local-ranks-filter", "--console names the ranks to show"},
    {"shutdown-timeout", "it is --grace here"},
    {"monitor-interval", "ends of processes are noticed at once"},
    {"rdzv-conf", "see --init-timeout"},
    {"local-addr", "the address that leads to --master-addr is used"},
    {"module", "name the interpreter with --worker and its arguments after --"},
    {"run-path", "name the program with --worker"},
    {"start-method", "processes are always started anew"},
    {"numa-binding", "it is --bind numa here"},
    {"role", "there is one role"},
    {"virtual-local-rank", "it is --isolate-gpus here"},
    {"signals-to-handle", "see the last lines of --help"},
};

std::string DashedName(absl::string_view name) {
  return absl::StrReplaceAll(name, {{"_", "-"}});
}

// What torchrun's option `name` is here; empty for an option that is not its.
std::string InsteadOf(absl::string_view name) {
  const std::string dashed = DashedName(name);
  for (const ForeignOption& option : kTorchrunOptions) {
    if (dashed == option.name) return option.instead;
  }
  return "";
}

const Option* FindOption(absl::string_view name) {
  const std::string dashed = DashedName(name);
  for (const Option& option : Options()) {
    if (dashed == option.name) return &option;
  }
  return nullptr;
}

// `text` in lines of at most `width`, each but the first indented.
std::string Wrapped(absl::string_view text, size_t width, size_t indent) {
  std::string wrapped;
  size_t column = 0;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (column > 0 && column + 1 + word.size() > width) {
      absl::StrAppend(&wrapped, "\n", std::string(indent, ' '));
      column = 0;
    } else if (column > 0) {
      wrapped += ' ';
      ++column;
    }
    absl::StrAppend(&wrapped, word);
    column += word.size();
  }
  return wrapped;
}

}  // namespace

bool ConsoleRanks::Shows(int rank) const {
  return all || std::any_of(ranges.begin(), ranges.end(), [&](const auto& r) {
           return r.first <= rank && rank <= r.second;
         });
}

absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text) {
  const absl::Status wanted =
      absl::InvalidArgumentError("wants a time such as 90s, 1.5m or 2h");
  if (text.empty() || !absl::ascii_isdigit(text.front())) return wanted;
  absl::Duration duration;
  const std::string with_unit =
      absl::StrCat(text, absl::ascii_isdigit(text.back()) ? "s" : "");
  if (!absl::ParseDuration(with_unit, &duration)) return wanted;
  return duration;
}

absl::StatusOr<RunnerOptions> ParseRunnerOptions(
    const std::vector<std::string>& arguments) {
  RunnerOptions options;
  bool model_given = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      options.worker_arguments.insert(options.worker_arguments.end(),
                                      arguments.begin() + i + 1,
                                      arguments.end());
      break;
    }
    if (argument == "-h") {
      options.help = true;
      continue;
    }
    const size_t equals = argument.find('=');
    const bool has_value = equals != std::string::npos;
    const std::string name =
        absl::StartsWith(argument, "--")
            ? argument.substr(2, has_value ? equals - 2 : std::string::npos)
            : "";
    const Option* const option = FindOption(name);
    if (const std::string instead = InsteadOf(name); !instead.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, " is torchrun's: ", instead,
                       "\nhelp: an option of the program's own goes after --"));
    }
    if (option == nullptr) {
      options.worker_arguments.push_back(argument);
      continue;
    }
    std::string value;
    if (has_value) {
      value = argument.substr(equals + 1);
    } else if (option->value != nullptr && i + 1 < arguments.size() &&
               !absl::StartsWith(arguments[i + 1], "--")) {
      value = arguments[++i];
    }
    if (option->value == nullptr && has_value) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", option->name, " takes no value, got ", argument));
    }
    if (option->value != nullptr && value.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", option->name, " wants a value: --", option->name,
                       " ", option->value));
    }
    model_given |= option->name == absl::string_view("model");
    if (const absl::Status set = option->set(options, value); !set.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", option->name, " ", value, ": ", set.message()));
    }
  }
  if (model_given && !options.worker.empty()) {
    return absl::InvalidArgumentError(
        "--worker says which program to start, so --model cannot; give one");
  }
  MIR_RETURN_IF_ERROR(CheckNodes(options));
  return options;
}

std::string RunnerHelp() {
  constexpr size_t kIndent = 32;
  constexpr size_t kWidth = 80;
  std::string help =
      "Usage: bazel run //tools:train -- [options] [options of the model's "
      "program]\n\n"
      "Trains a model in one or several processes, here or on several "
      "machines.\nOptions that are not listed here go to the model's program "
      "unchanged; after --,\nall do.\n\n";
  for (const Option& option : Options()) {
    std::string left = absl::StrCat("  --", option.name);
    if (option.value != nullptr) absl::StrAppend(&left, " ", option.value);
    if (left.size() < kIndent) {
      left.resize(kIndent, ' ');
    } else {
      absl::StrAppend(&left, "\n", std::string(kIndent, ' '));
    }
    absl::StrAppend(&help, left,
                    Wrapped(option.help, kWidth - kIndent, kIndent), "\n");
  }
  absl::StrAppend(
      &help,
      "\nCtrl-C asks the processes to save a checkpoint and stop; the second "
      "time they\nend at once, the third time they are killed.\n\n"
      "Exit codes: 0 done; 2 arguments; 3 devices, ports or folders; 10 data; "
      "11 a loss\nthat is not finite; 12 checkpoint; 20 a process was lost; 75 "
      "stopped after a\ncheckpoint; 124 a time limit; 126 or 127 the program "
      "cannot be started or is not\nthere; 128 + n ended by signal n; else "
      "that "
      "of the process that failed first.\n");
  return help;
}

}  // namespace mir::tools
