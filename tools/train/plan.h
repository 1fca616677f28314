#ifndef MIR_TOOLS_TRAIN_PLAN_H_
#define MIR_TOOLS_TRAIN_PLAN_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "mir/launch/env.h"
#include "tools/train/devices.h"
#include "tools/train/options.h"

namespace mir::tools {

// How many processes, and on what.
struct Placement {
  int processes = 1;
  bool cuda = false;
};

// Decides it. `find_devices` is called where GPUs matter. FAILED_PRECONDITION
// (exit code kEnvironment), with what to do instead, where there are not enough
// of them.
absl::StatusOr<Placement> Place(
    const Processes& processes,
    const std::function<CudaDevices()>& find_devices, int allowed_cpus);

// What all workers of a run have in common.
struct Plan {
  std::string worker;           // Path of the program.
  bool keeps_contract = false;  // worker_contract.h.
  Placement placement;
  int threads = 1;
  bool isolate_gpus = false;
  std::string run_id;
  std::string run_folder;      // As passed on; empty for none.
  std::string attempt_folder;  // Absolute.
  int generation = 0;
  int node = 0;
  int nodes = 1;
  int first_rank = 0;  // Of this node's processes.
  int world = 0;       // Processes of all nodes; 0: those of `placement`.
  std::string master_addr = "127.0.0.1";
  int restarts = 0;  // How many there were, and may be.
  int max_restarts = 0;
  bool resume = false;  // Our workers go on from the last checkpoint.
  int master_port = 0;
  int init_timeout_seconds = 120;
  int collective_timeout_seconds = 600;
};

// The program, its arguments and, behind its own promises, `--out` and, where
// it goes on, `--resume`.
std::vector<std::string> WorkerCommandLine(
    const Plan& plan, const std::vector<std::string>& arguments,
    bool out_given);

// The environment of all workers: `env` without what belongs to this process
// alone or to another launcher's run, with the devices, the threads and the
// variables of --env.
launch::Env CommonEnv(const Plan& plan, const RunnerOptions& options,
                      const launch::Env& env);

// CommonEnv and what torchrun's contract adds for the process `local_rank` of
// this node; with isolated GPUs, its own as the only one.
launch::Env RankEnv(const Plan& plan, int local_rank,
                    const launch::Env& common);

// Where a rank's logs are.
std::string RankFolder(const Plan& plan, int rank);

// Threads of each of `processes`: as given, else OMP_NUM_THREADS, else an equal
// share of the allowed CPUs, at least 1.
int ThreadsOf(const RunnerOptions& options, const launch::Env& env,
              int processes, int allowed_cpus);

}  // namespace mir::tools

#endif  // MIR_TOOLS_TRAIN_PLAN_H_
