#ifndef MIR_DISTRIBUTED_NCCL_H_
#define MIR_DISTRIBUTED_NCCL_H_

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace mir::distributed {

// Whether this program can use CUDA devices (built with --config=cuda).
bool HasNccl();

// NCCL among the ranks that share `store`, connected at once, so that what is
// wrong shows here and no rank takes memory on another's device. Throws
// c10::Error where it cannot connect, or without HasNccl().
c10::intrusive_ptr<c10d::Backend> MakeNccl(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    at::Device device, std::chrono::milliseconds timeout);

}  // namespace mir::distributed

#endif  // MIR_DISTRIBUTED_NCCL_H_
