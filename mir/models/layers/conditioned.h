#ifndef MIR_MODELS_LAYERS_CONDITIONED_H_
#define MIR_MODELS_LAYERS_CONDITIONED_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "mir/models/layers/convolution.h"

// Layers whose weights are their own, or those that a hypernetwork makes: what
// a model and its hypernetwork are both built from.
namespace mir::models {

class ConditionedConvolution {
 public:
  virtual ~ConditionedConvolution() = default;

  //   x          [N, in_channels, ...]
  //   embedding  [1, units] of a HyperEmbedding; not looked at without one
  //   returns    [N, out_channels, ...]
  virtual at::Tensor Convolve(const at::Tensor& x,
                              const at::Tensor& embedding) const = 0;

  // The same for features [N, C_i, ...] taken as if concatenated along the
  // channels, and a leaky ReLU of the result; a slope of 1 is none.
  virtual at::Tensor Convolve(const std::vector<at::Tensor>& features,
                              const at::Tensor& embedding,
                              double negative_slope) const = 0;
};

class ConditionedLinear {
 public:
  virtual ~ConditionedLinear() = default;

  // [..., inputs] to [..., outputs]; `embedding` as above.
  virtual at::Tensor Apply(const at::Tensor& x,
                           const at::Tensor& embedding) const = 0;
};

struct ConditionedOptions {
  bool hyper = false;      // A hypernetwork of 96 units makes the weights.
  bool near_zero = false;  // Starts with weights of deviation 1e-5.
};

// Adds a Convolution or a HyperConvolution to `parent`. Throws c10::ValueError
// where an option is out of range.
std::shared_ptr<ConditionedConvolution> AddConvolution(
    torch::nn::Module& parent, const std::string& name,
    const ConvolutionOptions& shape, const ConditionedOptions& options);

// Adds a Linear or a HyperLinear to `parent`.
std::shared_ptr<ConditionedLinear> AddLinear(torch::nn::Module& parent,
                                             const std::string& name,
                                             int64_t inputs, int64_t outputs,
                                             bool bias, bool hyper);

}  // namespace mir::models

#endif  // MIR_MODELS_LAYERS_CONDITIONED_H_
