#ifndef MIR_MODELS_SWIN_BACKBONE_H_
#define MIR_MODELS_SWIN_BACKBONE_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <vector>

namespace mir::models {

// A transformer that gives features of a pair of images at several resolutions.
class Backbone : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;

  //   moving, fixed  [N, C, D, H, W]  floating, of equal shape
  //   embedding      [1, 96] of a HyperEmbedding; not looked at without one
  //   returns        one set of features for the pair per level, from fine to
  //                  coarse: [N, features, d, h, w]
  virtual std::vector<at::Tensor> Features(
      const at::Tensor& moving, const at::Tensor& fixed,
      const at::Tensor& embedding) const = 0;
};

}  // namespace mir::models

#endif  // MIR_MODELS_SWIN_BACKBONE_H_
