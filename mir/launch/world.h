#ifndef MIR_LAUNCH_WORLD_H_
#define MIR_LAUNCH_WORLD_H_

#include <string>

#include "absl/status/statusor.h"
#include "mir/launch/env.h"

namespace mir::launch {

// Which process of how many this is, and where they meet.
struct World {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // Among the processes of this machine.
  int local_size = 1;

  std::string launcher;  // torchrun, slurm, openmpi or pmi; empty for none.

  // Where the ranks meet. Ours and torchrun's contract is TCPStore's: rank 0
  // listens on master_port, unless `agent_store` says that the launcher does.
  std::string master_addr;
  int master_port = 0;
  bool agent_store = false;

  // A socket that already listens on master_port, for rank 0 to serve the store
  // from (TCPStoreOptions::masterListenFd); -1 where rank 0 binds the port
  // itself. See the README.
  int store_fd = -1;

  // What tells this start from earlier ones, so that the keys of an earlier one
  // in a store that outlived it are not read: a prefix for the store's keys.
  // Empty where the launcher gives none that all ranks share, as torchrun on
  // several machines with restarts allowed; the ranks then agree on one.
  std::string generation;

  // How long the ranks may take to find each other.
  int init_timeout_seconds = 120;
  // How long one exchange between the ranks may take.
  int collective_timeout_seconds = 600;

  // Whether a launcher started this process as one of `size`; otherwise it is
  // alone and needs no store.
  bool launched() const { return !launcher.empty(); }
};

// Reads the world from environment variables:
//
//   torchrun   RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT; optional
//              LOCAL_WORLD_SIZE (else all ranks are taken to be on this
//              machine), GROUP_RANK, GROUP_WORLD_SIZE, TORCHELASTIC_*
//   SLURM      SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS,
//              SLURM_LOCALID, SLURM_NODEID, the step's node list
//   Open MPI   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
//   PMI        PMI_RANK, PMI_SIZE, with MPI_LOCALRANKID, MPI_LOCALNRANKS or
//              PMI_LOCAL_RANK, PMI_LOCAL_SIZE
//
// The first of these that is there decides: where RANK is set the others are
// not looked at. MASTER_ADDR and MASTER_PORT, where set, win over what the
// scheduler says. None at all, or one SLURM, Open MPI or PMI task, is a single
// process.
//
// FAILED_PRECONDITION (exit code kEnvironment) where a variable is missing,
// malformed or contradicts another: the message names each and what to do.
absl::StatusOr<World> WorldFromEnv(const Env& env);

}  // namespace mir::launch

#endif  // MIR_LAUNCH_WORLD_H_
