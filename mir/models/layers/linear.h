#ifndef MIR_MODELS_LAYERS_LINEAR_H_
#define MIR_MODELS_LAYERS_LINEAR_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

namespace mir::models {

// A linear layer. Parameters (`weight` [out, in], `bias` [out]) and their first
// values are those of torch.nn.Linear.
class Linear : public torch::nn::Module {
 public:
  // Both sizes at least 1, else c10::ValueError.
  Linear(int64_t in_features, int64_t out_features, bool with_bias = true);

  // [..., in] to [..., out]; 16-bit under autocast.
  at::Tensor forward(const at::Tensor& input) const;

  at::Tensor weight;
  at::Tensor bias;  // Undefined without.
};

// Normalises the last axis (torch.nn.LayerNorm): `weight` and `bias` [size],
// one and zero at first. Float32 under autocast for float32 inputs; statistics
// are float32 at least.
class LayerNorm : public torch::nn::Module {
 public:
  explicit LayerNorm(int64_t size);

  // [..., size], in and out.
  at::Tensor forward(const at::Tensor& input) const;

  at::Tensor weight, bias;
};

}  // namespace mir::models

#endif  // MIR_MODELS_LAYERS_LINEAR_H_
