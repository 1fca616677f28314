#ifndef MIR_DISTRIBUTED_CUDA_INDEX_H_
#define MIR_DISTRIBUTED_CUDA_INDEX_H_

#include "absl/status/statusor.h"
#include "mir/launch/world.h"

namespace mir::distributed {

// Which of `visible` CUDA devices (at least 1) a rank uses: the only one, since
// a scheduler may show each process its own, else the one of its local rank.
//
// FAILED_PRECONDITION if there are fewer devices than local ranks.
absl::StatusOr<int> CudaIndex(const launch::World& world, int visible);

}  // namespace mir::distributed

#endif  // MIR_DISTRIBUTED_CUDA_INDEX_H_
