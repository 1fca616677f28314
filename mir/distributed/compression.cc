#include "mir/distributed/compression.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <utility>
#include <vector>

namespace mir::distributed {
namespace {

using Processes = c10::intrusive_ptr<c10d::ProcessGroup>;

class CompressionHook : public c10d::CppCommHookInterface<Processes> {
 public:
  CompressionHook(const Processes& processes, at::ScalarType dtype)
      : CppCommHookInterface(processes), dtype_(dtype) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(
      c10d::GradBucket& bucket) override {
    const at::Tensor buffer = bucket.getBuffer();
    std::vector<at::Tensor> sent = {buffer.div(state_->getSize()).to(dtype_)};
    return state_->allreduce(sent)->getFuture()->then(
        [buffer](c10::ivalue::Future& sum) {
          buffer.copy_(sum.value().toTensorVector()[0]);
          return c10::IValue(buffer);
        },
        c10::TensorType::get());
  }

 private:
  const at::ScalarType dtype_;
};

}  // namespace

std::unique_ptr<c10d::CommHookInterface> MakeCompressionHook(
    const Processes& processes, Compression compression) {
  return std::make_unique<CompressionHook>(
      processes,
      compression == Compression::kFloat16 ? at::kHalf : at::kBFloat16);
}

}  // namespace mir::distributed
