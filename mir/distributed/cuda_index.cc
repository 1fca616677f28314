#include "mir/distributed/cuda_index.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace mir::distributed {

absl::StatusOr<int> CudaIndex(const launch::World& world, int visible) {
  if (visible == 1) return 0;
  if (world.local_rank < visible) return world.local_rank;
  return absl::FailedPreconditionError(absl::StrCat(
      "rank ", world.rank, " wants the CUDA device LOCAL_RANK=",
      world.local_rank, ", but only ", visible,
      " are visible; start at most as many processes on a machine as it has "
      "devices"));
}

}  // namespace mir::distributed
