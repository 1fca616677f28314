#include "mir/distributed/named_tensors.h"

#include <torch/nn/module.h>

#include <unordered_set>

namespace mir::distributed {
namespace {

// Those of `items` that `wanted` takes, each tensor once.
template <typename Items, typename Wanted>
void AppendDistinct(const Items& items, const Wanted& wanted,
                    NamedTensors& result) {
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : items) {
    const at::Tensor& tensor = item.value();
    if (tensor.defined() && wanted(tensor) &&
        seen.insert(tensor.unsafeGetTensorImpl()).second) {
      result.emplace_back(item.key(), tensor);
    }
  }
}

}  // namespace

NamedTensors Buffers(const torch::nn::Module& module) {
  NamedTensors result;
  AppendDistinct(
      module.named_buffers(),
      [](const at::Tensor& buffer) { return buffer.numel() > 0; }, result);
  return result;
}

NamedTensors TrainedParameters(const torch::nn::Module& module) {
  NamedTensors result;
  AppendDistinct(
      module.named_parameters(),
      [](const at::Tensor& parameter) { return parameter.requires_grad(); },
      result);
  return result;
}

NamedTensors AllTensors(const torch::nn::Module& module) {
  NamedTensors result;
  AppendDistinct(
      module.named_parameters(), [](const at::Tensor&) { return true; },
      result);
  const NamedTensors buffers = Buffers(module);
  result.insert(result.end(), buffers.begin(), buffers.end());
  return result;
}

}  // namespace mir::distributed
