#include "mir/launch/world.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "mir/base/status_macros.h"

namespace mir::launch {
namespace {

constexpr int64_t kMostRanks = 1 << 20;
// PyTorch's usual port.
constexpr int kDefaultPort = 29500;

// The first of `names` that is set, or the first where none is.
absl::string_view FirstSet(const Env& env,
                           const std::vector<absl::string_view>& names) {
  for (const absl::string_view name : names) {
    if (Has(env, name)) return name;
  }
  return names.front();
}

// Names all variables of `names` that are missing, and what to do.
absl::Status RequireAll(const Env& env,
                        const std::vector<absl::string_view>& names,
                        absl::string_view because, absl::string_view remedy) {
  std::vector<absl::string_view> missing;
  for (const absl::string_view name : names) {
    if (!Has(env, name)) missing.push_back(name);
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      absl::StrJoin(missing, ", "), missing.size() == 1 ? " is" : " are",
      " not set, although ", because, "; ", remedy));
}

absl::Status ReadRanks(const Env& env, absl::string_view rank,
                       absl::string_view size, absl::string_view local_rank,
                       absl::string_view local_size, World* world) {
  MIR_ASSIGN_OR_RETURN(world->size, GetInt(env, size, 1, kMostRanks));
  MIR_ASSIGN_OR_RETURN(world->rank, GetInt(env, rank, 0, kMostRanks));
  MIR_ASSIGN_OR_RETURN(world->local_rank,
                       GetInt(env, local_rank, 0, kMostRanks));
  world->local_size = world->size;
  if (Has(env, local_size)) {
    MIR_ASSIGN_OR_RETURN(world->local_size,
                         GetInt(env, local_size, 1, kMostRanks));
  }
  if (world->rank >= world->size) {
    return absl::FailedPreconditionError(
        absl::StrCat(rank, "=", world->rank, " is outside ", size, "=",
                     world->size, "; ranks count from 0 to ", world->size - 1));
  }
  if (world->local_size > world->size) {
    return absl::FailedPreconditionError(
        absl::StrCat(local_size, "=", world->local_size, " is more than ", size,
                     "=", world->size));
  }
  if (world->local_rank >= world->local_size) {
    return absl::FailedPreconditionError(absl::StrCat(
        local_rank, "=", world->local_rank, " is outside ",
        Has(env, local_size) ? local_size : size, "=", world->local_size,
        "; it counts the ranks of one machine from 0"));
  }
  return absl::OkStatus();
}

// MASTER_ADDR and MASTER_PORT where set, else what the scheduler gives.
absl::Status ReadMaster(const Env& env, absl::string_view addr, int port,
                        World* world) {
  world->master_addr =
      Has(env, "MASTER_ADDR") ? Get(env, "MASTER_ADDR") : std::string(addr);
  world->master_port = port;
  if (Has(env, "MASTER_PORT")) {
    MIR_ASSIGN_OR_RETURN(world->master_port,
                         GetInt(env, "MASTER_PORT", 1, 65535));
  }
  return absl::OkStatus();
}

// A port that all ranks of a job derive alike, below the range from which the
// kernel gives ports to outgoing connections.
int PortOf(absl::string_view job) {
  uint32_t hash = 2166136261u;  // FNV-1a.
  for (const char c : job) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  }
  return 20000 + hash % 12000;
}

absl::StatusOr<World> FromTorchrun(const Env& env) {
  MIR_RETURN_IF_ERROR(RequireAll(
      env, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"},
      "another variable of torchrun's contract is",
      "start with //tools:train or torchrun, which set all of them, or unset "
      "RANK, WORLD_SIZE and LOCAL_RANK to run as a single process"));
  World world;
  world.launcher = "torchrun";
  MIR_RETURN_IF_ERROR(ReadRanks(env, "RANK", "WORLD_SIZE", "LOCAL_RANK",
                                "LOCAL_WORLD_SIZE", &world));
  MIR_RETURN_IF_ERROR(ReadMaster(env, "", 0, &world));
  world.agent_store = Get(env, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (Has(env, "MIR_STORE_FD")) {
    MIR_ASSIGN_OR_RETURN(
        world.store_fd,
        GetInt(env, "MIR_STORE_FD", 0, std::numeric_limits<int>::max()));
  }

  if (Has(env, "MIR_GENERATION")) {
    world.generation = Get(env, "MIR_GENERATION");
  } else if (!Has(env, "TORCHELASTIC_RESTART_COUNT")) {
    world.generation = "0";
  } else if (world.local_size == world.size ||
             Get(env, "TORCHELASTIC_MAX_RESTARTS") == "0") {
    world.generation = Get(env, "TORCHELASTIC_RESTART_COUNT");
  }  // Else torchrun counts restarts per machine.

  // Only where srun started this very process: under a launcher of its own in
  // each task the sizes differ rightly.
  if (Get(env, "SLURM_TASK_PID") == absl::StrCat(getpid()) &&
      Has(env, "SLURM_STEP_NUM_TASKS") &&
      Get(env, "SLURM_STEP_NUM_TASKS") != Get(env, "WORLD_SIZE")) {
    return absl::FailedPreconditionError(
        absl::StrCat("WORLD_SIZE=", Get(env, "WORLD_SIZE"), " contradicts ",
                     "SLURM_STEP_NUM_TASKS=", Get(env, "SLURM_STEP_NUM_TASKS"),
                     "; unset RANK and WORLD_SIZE, srun gives both"));
  }
  return world;
}

// The first host of a SLURM node list: node003 of node[003-010,12],login1.
std::string FirstHost(absl::string_view list) {
  std::string host;
  while (!list.empty() && list.front() != ',') {
    if (list.front() != '[') {
      host.push_back(list.front());
      list.remove_prefix(1);
      continue;
    }
    list.remove_prefix(1);
    const size_t end = std::min(list.find_first_of("-,]"), list.size());
    absl::StrAppend(&host, list.substr(0, end));
    list.remove_prefix(std::min(list.find(']'), list.size()));
    if (!list.empty()) list.remove_prefix(1);
  }
  return host;
}

// The number of tasks on node `node` by SLURM's 2(x3),1; 0 where it does not
// say.
int64_t TasksOnNode(absl::string_view tasks_per_node, int64_t node) {
  for (const absl::string_view part : absl::StrSplit(tasks_per_node, ',')) {
    const std::vector<absl::string_view> pieces =
        absl::StrSplit(part, absl::ByAnyChar("(x)"), absl::SkipEmpty());
    int64_t tasks = 0;
    int64_t repeats = 1;
    if (pieces.empty() || !absl::SimpleAtoi(pieces[0], &tasks)) return 0;
    if (pieces.size() > 1 && !absl::SimpleAtoi(pieces[1], &repeats)) return 0;
    if (node < repeats) return tasks;
    node -= repeats;
  }
  return 0;
}

absl::StatusOr<World> FromSlurm(const Env& env) {
  const absl::string_view size =
      FirstSet(env, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  const std::string count = Get(env, size);
  if (count == "1") return World{};
  if (!Has(env, "SLURM_STEP_NUM_TASKS") && !Has(env, "SLURM_STEP_ID") &&
      !Has(env, "SLURM_STEPID")) {
    // In a batch script itself SLURM_PROCID is 0 and SLURM_NTASKS the job's.
    return absl::FailedPreconditionError(absl::StrCat(
        "this is one process of a SLURM job of ",
        count.empty() ? "unknown size" : absl::StrCat(count, " tasks"),
        ", but srun did not start it (SLURM_STEP_NUM_TASKS is not set); start "
        "it with srun, or unset SLURM_PROCID to run as a single process"));
  }
  MIR_RETURN_IF_ERROR(RequireAll(
      env, {"SLURM_PROCID", size, "SLURM_LOCALID"}, "SLURM_PROCID is",
      "start with srun, which sets all of them, or unset SLURM_PROCID to run "
      "as a single process"));
  World world;
  world.launcher = "slurm";
  world.generation = "0";
  MIR_RETURN_IF_ERROR(ReadRanks(env, "SLURM_PROCID", size, "SLURM_LOCALID",
                                /*local_size=*/"", &world));
  if (Has(env, "WORLD_SIZE") && Get(env, "WORLD_SIZE") != count) {
    return absl::FailedPreconditionError(absl::StrCat(
        "WORLD_SIZE=", Get(env, "WORLD_SIZE"), " contradicts ", size, "=",
        count, "; unset WORLD_SIZE, srun gives the size"));
  }
  const std::string tasks =
      Get(env,
          FirstSet(env, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}));
  int64_t node = 0;
  if (Has(env, "SLURM_NODEID")) {
    MIR_ASSIGN_OR_RETURN(node, GetInt(env, "SLURM_NODEID", 0, kMostRanks));
  }
  if (const int64_t here = TasksOnNode(tasks, node); here > 0) {
    world.local_size = std::min<int64_t>(here, world.size);
  }
  if (world.local_rank >= world.local_size) {
    return absl::FailedPreconditionError(absl::StrCat(
        "SLURM_LOCALID=", world.local_rank, " is outside the ",
        world.local_size, " tasks that SLURM_TASKS_PER_NODE=", tasks,
        " gives node ", node));
  }
  const std::string nodes =
      Get(env, FirstSet(env, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST",
                              "SLURM_NODELIST"}));
  if (nodes.empty() && !Has(env, "MASTER_ADDR")) {
    return absl::FailedPreconditionError(
        "SLURM_STEP_NODELIST is not set, so rank 0's machine is unknown; set "
        "MASTER_ADDR to its name");
  }
  MIR_RETURN_IF_ERROR(ReadMaster(
      env, FirstHost(nodes),
      PortOf(absl::StrCat(
          Get(env, FirstSet(env, {"SLURM_JOB_ID", "SLURM_JOBID"})), ".",
          Get(env, FirstSet(env, {"SLURM_STEP_ID", "SLURM_STEPID"})))),
      &world));
  return world;
}

// Names of the variables of an MPI launcher.
struct Mpi {
  absl::string_view launcher;
  absl::string_view rank;
  absl::string_view size;
  absl::string_view local_rank;
  absl::string_view local_size;
  absl::string_view job;  // The same text on all ranks; may be absent.
};

absl::StatusOr<World> FromMpi(const Env& env, const Mpi& mpi) {
  if (Get(env, mpi.size) == "1") return World{};
  MIR_RETURN_IF_ERROR(RequireAll(
      env, {mpi.rank, mpi.size, mpi.local_rank, mpi.local_size},
      absl::StrCat(mpi.rank, " is"),
      absl::StrCat("start with mpirun, which sets all of them, or unset ",
                   mpi.rank, " to run as a single process")));
  World world;
  world.launcher = std::string(mpi.launcher);
  world.generation = "0";
  MIR_RETURN_IF_ERROR(ReadRanks(env, mpi.rank, mpi.size, mpi.local_rank,
                                mpi.local_size, &world));
  const std::string world_size = Get(env, "WORLD_SIZE");
  if (!world_size.empty() && world_size != Get(env, mpi.size)) {
    return absl::FailedPreconditionError(
        absl::StrCat("WORLD_SIZE=", world_size, " contradicts ", mpi.size, "=",
                     Get(env, mpi.size), "; unset WORLD_SIZE"));
  }
  if (world.local_size < world.size && !Has(env, "MASTER_ADDR")) {
    return absl::FailedPreconditionError(absl::StrCat(
        "MASTER_ADDR is not set, and ", mpi.size, "=", world.size, " with ",
        mpi.local_size, "=", world.local_size,
        " means several machines; pass the name of rank 0's machine to all "
        "ranks (mpirun -x MASTER_ADDR, or -genv MASTER_ADDR NAME)"));
  }
  const std::string job = Get(env, mpi.job);
  MIR_RETURN_IF_ERROR(ReadMaster(
      env, "127.0.0.1", job.empty() ? kDefaultPort : PortOf(job), &world));
  return world;
}

absl::StatusOr<World> FromAnyLauncher(const Env& env) {
  if (Has(env, "RANK")) return FromTorchrun(env);
  if (Has(env, "SLURM_PROCID")) return FromSlurm(env);
  if (Has(env, "OMPI_COMM_WORLD_RANK")) {
    return FromMpi(env, {"openmpi", "OMPI_COMM_WORLD_RANK",
                         "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                         "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"});
  }
  if (Has(env, "PMI_RANK")) {
    return FromMpi(env, {"pmi", "PMI_RANK", "PMI_SIZE",
                         FirstSet(env, {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"}),
                         FirstSet(env, {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}),
                         "PMI_JOBID"});
  }
  if (Has(env, "WORLD_SIZE") || Has(env, "LOCAL_RANK")) {
    return FromTorchrun(env);
  }
  return World{};
}

}  // namespace

absl::StatusOr<World> WorldFromEnv(const Env& env) {
  MIR_ASSIGN_OR_RETURN(World world, FromAnyLauncher(env));
  if (Has(env, "MIR_INIT_TIMEOUT")) {
    MIR_ASSIGN_OR_RETURN(
        world.init_timeout_seconds,
        GetInt(env, "MIR_INIT_TIMEOUT", 1, std::numeric_limits<int>::max()));
  }
  if (Has(env, "MIR_COLLECTIVE_TIMEOUT")) {
    MIR_ASSIGN_OR_RETURN(world.collective_timeout_seconds,
                         GetInt(env, "MIR_COLLECTIVE_TIMEOUT", 1,
                                std::numeric_limits<int>::max()));
  }
  return world;
}

}  // namespace mir::launch
