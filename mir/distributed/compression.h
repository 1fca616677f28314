#ifndef MIR_DISTRIBUTED_COMPRESSION_H_
#define MIR_DISTRIBUTED_COMPRESSION_H_

#include <memory>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "mir/distributed/ddp.h"

namespace mir::distributed {

// A hook for c10d's Reducer: sums each bucket of gradients over the ranks in 16
// bits, divided by their number beforehand, and gives it back in its dtype. The
// same value arrives on every rank. `compression` is not kNone.
std::unique_ptr<c10d::CommHookInterface> MakeCompressionHook(
    const c10::intrusive_ptr<c10d::ProcessGroup>& processes,
    Compression compression);

}  // namespace mir::distributed

#endif  // MIR_DISTRIBUTED_COMPRESSION_H_
