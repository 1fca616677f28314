#include "mir/distributed/nccl.h"

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace mir::distributed {

bool HasNccl() { return true; }

c10::intrusive_ptr<c10d::Backend> MakeNccl(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    at::Device device, std::chrono::milliseconds timeout) {
  c10::intrusive_ptr<c10d::ProcessGroupNCCL::Options> options =
      c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  c10::intrusive_ptr<c10d::Backend> backend =
      c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
  backend->setBoundDeviceId(device);
  backend->eagerConnectSingleDevice(device);
  return backend;
}

}  // namespace mir::distributed
