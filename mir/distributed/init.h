#ifndef MIR_DISTRIBUTED_INIT_H_
#define MIR_DISTRIBUTED_INIT_H_

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "mir/launch/world.h"

namespace mir::distributed {

// The connected processes: c10d's store and process group (group.h has the
// definition, for this package alone: it costs ten seconds to parse).
struct Group;

// What one rank knows of the run. Cheap to copy; copies share the group.
struct Context {
  launch::World world;
  at::Device device = at::kCPU;
  // Null in a single process: every collective is then the identity.
  std::shared_ptr<Group> group;
};

// Which device the ranks compute on.
enum class DeviceKind {
  kAuto,  // CUDA where a device is visible, else the CPU.
  kCpu,
  kCuda,
};

struct InitOptions {
  // This rank and its peers; the process's environment tells if absent.
  absl::optional<launch::World> world = absl::nullopt;
  DeviceKind device = DeviceKind::kAuto;
  // How long to wait, in all, for the peers to come and to be connected;
  // world.init_timeout_seconds if absent.
  absl::optional<absl::Duration> init_timeout = absl::nullopt;
  // How long one collective may take afterwards;
  // world.collective_timeout_seconds if absent. It is what a rank waits for a
  // peer that lives but does not take part; a dead one is noticed at once.
  absl::optional<absl::Duration> collective_timeout = absl::nullopt;
  // Whatever must be the same on every rank beside the number of ranks: the
  // options, the program's version. Printed when it is not.
  std::string fingerprint = "";
};

// Joins this process to its peers: chooses the device, meets the others at the
// store, checks that all want the same, and connects them: gloo for tensors on
// the CPU, NCCL for those on CUDA. Every rank must call it. In a single process
// (world.size 1) it only chooses the device.
//
// The store is a client of torchrun's agent where world.agent_store says so;
// else rank 0 serves it at world.master_addr:master_port, on the socket
// world.store_fd where there is one. Each call agrees with its peers on keys of
// its own there, so restarts may share a store.
//
// The device: `cpu`, or the CUDA device local_rank (the only one if just one is
// visible), which becomes the current one. Addresses: 127.0.0.1 where all ranks
// are on one machine, else that of the interface that leads to master_addr;
// GLOO_SOCKET_IFNAME overrides both.
//
// Errors name what was wanted and what came. Exit code kEnvironment:
//   FAILED_PRECONDITION  the environment contradicts itself (WorldFromEnv); no
//                        such device; the port is taken; ranks that disagree
//                        on the number of ranks or the fingerprint, or two
//                        with the same rank
//   DEADLINE_EXCEEDED    the ranks that did not come within init_timeout
// Exit code kPeer:
//   UNAVAILABLE          the store or a peer went away
absl::StatusOr<Context> InitDistributed(const InitOptions& options = {});

// Leaves the group, at the end of a run or after an error; every use of a copy
// of `context` must be over. After a peer failed it leaves the connections to
// the end of the process, since closing them would wait for collectives that
// never end. Does nothing in a single process, or the second time.
void Cleanup(Context& context);

}  // namespace mir::distributed

#endif  // MIR_DISTRIBUTED_INIT_H_
