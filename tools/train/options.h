#ifndef MIR_TOOLS_TRAIN_OPTIONS_H_
#define MIR_TOOLS_TRAIN_OPTIONS_H_

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "mir/launch/cpus.h"
#include "tools/train/restarts.h"

namespace mir::tools {

// Which ranks' output the console shows.
struct ConsoleRanks {
  bool all = false;
  std::vector<std::pair<int, int>> ranges = {{0, 0}};  // First and last.

  bool Shows(int rank) const;
};

// What stands on stdout: the workers' lines, or all events as JSON lines.
enum class OutputFormat { kHuman, kJson };

enum class ColorMode { kAuto, kAlways, kNever };

// How many processes, and where.
struct Processes {
  enum class Kind {
    kAllGpus,   // One for each GPU that is visible.
    kGpus,      // `count`, each with a GPU.
    kCpu,       // `count` on the CPU.
    kEither,    // `count`: on GPUs where there are any, else on the CPU.
    kGpuOrCpu,  // All GPUs where there are any, else one for each allowed CPU.
    kAllCpus,   // One for each allowed CPU.
  };
  Kind kind = Kind::kAllGpus;
  int count = 0;
  std::string as_given;  // "--gpus 4"; empty where the command line is silent.
};

// The runner's own options.
struct RunnerOptions {
  std::string model = "voxelmorph";
  std::string worker;  // A program; empty for the model's.
  Processes processes;
  std::string out;
  absl::Duration grace = absl::Seconds(30);
  absl::Duration kill_wait = absl::Seconds(10);
  absl::Duration timeout = absl::InfiniteDuration();
  absl::Duration init_timeout = absl::Seconds(120);
  absl::Duration collective_timeout = absl::Seconds(600);
  absl::Duration hang_timeout = absl::Seconds(600);
  int max_restarts = 0;
  // What to start again after; absent for what another start may mend.
  absl::optional<std::set<FailureKind>> restart_on;
  launch::CpuBinding bind = launch::CpuBinding::kNone;
  bool isolate_gpus = false;  // Each process sees its own alone.
  std::string interface;      // Of the network; empty for that to node 0.
  int threads = 0;  // Of each process; 0: its share of the allowed CPUs.
  std::vector<std::pair<std::string, std::string>> env;
  int nodes = 1;
  int node = 0;
  std::string master_addr;  // Empty for this machine.
  int master_port = 0;      // 0 for a free one.
  std::string run_id;       // Empty for the folder's name.
  ConsoleRanks console;
  bool timestamps = false;
  ColorMode color = ColorMode::kAuto;
  OutputFormat format = OutputFormat::kHuman;
  std::string junit;  // A report to write; empty for none.
  bool dry_run = false;
  bool help = false;
  bool help_worker = false;

  // Everything else, in order and unchanged.
  std::vector<std::string> worker_arguments;
};

// Cuts a command line (without the program's name) into the runner's options
// and the worker's. `--name value` and `--name=value` are the same, and so are
// dashes and underscores inside the runner's names; what is not one of them is
// left as it is, and so is everything after `--`, which is dropped itself.
//
// INVALID_ARGUMENT where one of the runner's own options lacks its value, has
// one that cannot be, or contradicts another, and for an option of torchrun's
// that means nothing here: it names ours.
absl::StatusOr<RunnerOptions> ParseRunnerOptions(
    const std::vector<std::string>& arguments);

// The text of --help.
std::string RunnerHelp();

// "1.5s", "2m" or "30" (seconds). INVALID_ARGUMENT for anything else and for
// what is negative.
absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text);

}  // namespace mir::tools

#endif  // MIR_TOOLS_TRAIN_OPTIONS_H_
