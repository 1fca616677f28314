#include "mir/models/layers/weights.h"

#include <ATen/ops/empty.h>
#include <torch/nn/module.h>

#include <cmath>

namespace mir::models {
namespace {

thread_local bool without_weights = false;

bool HasMemory(const at::Tensor& tensor) {
  return tensor.numel() == 0 || tensor.storage().nbytes() != 0;
}

}  // namespace

WithoutWeights::WithoutWeights() : previous_(without_weights) {
  without_weights = true;
}

WithoutWeights::~WithoutWeights() { without_weights = previous_; }

at::Tensor NewWeight(at::IntArrayRef shape) {
  if (!without_weights) return at::empty(shape, at::kFloat);
  at::Tensor weight = at::empty({0}, at::kFloat);
  weight.storage()
      .unsafeGetStorageImpl()
      ->release_data_and_set_meta_custom_data_ptr_error_msg_(
          "the module was built without weights: load them first");
  weight.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  return weight;
}

void InitUniform(const at::Tensor& weight, double low, double high) {
  if (HasMemory(weight)) weight.detach().uniform_(low, high);
}

void InitNormal(const at::Tensor& weight, double mean, double deviation) {
  if (HasMemory(weight)) weight.detach().normal_(mean, deviation);
}

void InitTruncatedNormal(const at::Tensor& weight, double deviation) {
  if (!HasMemory(weight)) return;
  // Inverts the distribution function between the cuts.
  const double mass = std::erf(2 / deviation / std::sqrt(2.0));
  weight.detach()
      .uniform_(-mass, mass)
      .erfinv_()
      .mul_(deviation * std::sqrt(2.0))
      .clamp_(-2, 2);
}

void InitConstant(const at::Tensor& weight, double value) {
  if (HasMemory(weight)) weight.detach().fill_(value);
}

void InitKaiming(const at::Tensor& weight, const at::Tensor& bias) {
  const double fan_in = weight.numel() / weight.size(0);
  const double bound =
      std::sqrt(3.0) * (std::sqrt(2.0 / (1 + 5)) / std::sqrt(fan_in));
  InitUniform(weight, -bound, bound);
  if (!bias.defined()) return;
  InitUniform(bias, -1 / std::sqrt(fan_in), 1 / std::sqrt(fan_in));
}

void AllocateWeights(torch::nn::Module& module) {
  for (const at::Tensor& parameter : module.parameters()) {
    if (HasMemory(parameter)) continue;
    parameter.unsafeGetTensorImpl()->set_storage_keep_dtype(
        at::empty(parameter.sizes(), parameter.scalar_type()).storage());
  }
}

}  // namespace mir::models
