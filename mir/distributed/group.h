#ifndef MIR_DISTRIBUTED_GROUP_H_
#define MIR_DISTRIBUTED_GROUP_H_

#include <atomic>
#include <cstdint>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/status/statusor.h"
#include "mir/distributed/init.h"

namespace mir::distributed {

struct Group {
  // Takes time when collectives are under way that no peer completes, so the
  // connections are then left open to the end of the process.
  ~Group();

  c10::intrusive_ptr<c10d::Store> store;  // Keys of this group alone.
  c10::intrusive_ptr<c10d::ProcessGroup> processes;
  // A collective failed, or a backward pass that exchanges gradients began and
  // did not end.
  std::atomic<bool> peer_failed{false};
  std::atomic<bool> under_way{false};
  int64_t barriers = 0;  // How many this rank has come to.
};

// As InitDistributed, with a store that the ranks share already.
absl::StatusOr<Context> InitWithStore(
    const c10::intrusive_ptr<c10d::Store>& store, const InitOptions& options);

}  // namespace mir::distributed

#endif  // MIR_DISTRIBUTED_GROUP_H_
