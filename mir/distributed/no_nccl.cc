#include <c10/util/Exception.h>

#include "mir/distributed/nccl.h"

namespace mir::distributed {

bool HasNccl() { return false; }

c10::intrusive_ptr<c10d::Backend> MakeNccl(
    const c10::intrusive_ptr<c10d::Store>& /*store*/, int /*rank*/,
    int /*size*/, at::Device device, std::chrono::milliseconds /*timeout*/) {
  TORCH_CHECK(false, "a group on ", device,
              " needs a program built with --config=cuda");
}

}  // namespace mir::distributed
