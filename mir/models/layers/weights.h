#ifndef MIR_MODELS_LAYERS_WEIGHTS_H_
#define MIR_MODELS_LAYERS_WEIGHTS_H_

#include <ATen/core/Tensor.h>

namespace torch::nn {
class Module;
}

// How layers make their weights, so that a module can also be built without
// them: for the layout of its state_dict, or to be loaded at once, where
// drawing 1.6 billion random numbers first would be a waste.
namespace mir::models {

// A scope of this thread in which `NewWeight` gives weights of the right shape
// and dtype that hold no memory, and the Init functions do nothing. To read or
// write such a weight is a c10::Error.
// Scopes nest.
class WithoutWeights {
 public:
  WithoutWeights();
  ~WithoutWeights();
  WithoutWeights(const WithoutWeights&) = delete;
  WithoutWeights& operator=(const WithoutWeights&) = delete;

 private:
  const bool previous_;
};

// A float32 weight on the CPU, not initialised: a layer registers it, and then
// says its first values with a function below.
at::Tensor NewWeight(at::IntArrayRef shape);

// First values of a weight: uniform in [low, high), normal, normal within
// [-2, 2] (what timm's trunc_normal_ draws; the cut is absolute, not in
// deviations), or constant. They draw from the default generator. They do
// nothing on a weight without memory.
void InitUniform(const at::Tensor& weight, double low, double high);
void InitNormal(const at::Tensor& weight, double mean, double deviation);
void InitTruncatedNormal(const at::Tensor& weight, double deviation);
void InitConstant(const at::Tensor& weight, double value);

// PyTorch's default for linear layers and convolutions, weight [out, in, ...]
// and bias [out] (may be undefined): Kaiming's uniform rule with a = sqrt(5).
void InitKaiming(const at::Tensor& weight, const at::Tensor& bias);

// Gives every parameter of `module` that has none its memory, not initialised:
// a strict load of a state_dict must follow.
void AllocateWeights(torch::nn::Module& module);

// `build()`, a shared pointer to a module, without weights.
template <typename Build>
auto BuildWithoutWeights(const Build& build) {
  const WithoutWeights scope;
  return build();
}

}  // namespace mir::models

#endif  // MIR_MODELS_LAYERS_WEIGHTS_H_
