#ifndef MIR_MODELS_SWIN_SWIN_TRANSFORMER_H_
#define MIR_MODELS_SWIN_SWIN_TRANSFORMER_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include "mir/models/layers/linear.h"
#include "mir/models/layers/module_list.h"
#include "mir/models/swin/backbone.h"
#include "mir/models/swin/swin_config.h"
#include "mir/models/swin/swin_layers.h"

namespace mir::models {

// The Swin transformer in 3-D that TransMorph is built on, with the
// `state_dict` of MIR's SwinTransformer: patches become tokens, which attend to
// each other in windows, shifted by half a window in every other block; from
// level to level eight tokens become one, with twice the features.
//
// Liu et al., "Swin Transformer: Hierarchical Vision Transformer using Shifted
// Windows", ICCV 2021; Chen et al., "TransMorph: Transformer for unsupervised
// medical image registration", Medical Image Analysis 82, 2022.
//
// With `config.hyper` it is that of MIR's HyperTransMorph, whose weights a
// hypernetwork makes.
//
// Sizes that are no multiple of a patch or a window are padded with zeros at
// the end of the axis, which take part in what follows, as in MIR.
class SwinTransformer : public Backbone {
 public:
  // Throws c10::ValueError where the configuration is not as SwinConfig says.
  explicit SwinTransformer(const SwinConfig& config);

  // Features of the levels in `out_indices`, from fine to coarse.
  //
  //   images   [N, in_chans, D, H, W]  floating
  //   returns  level i: [N, embed_dim 2^i, D / (patch 2^i), ...], D / patch
  //            rounded up; their memory has the channels last
  //
  // With `config.hyper`, `embedding` is that of a HyperEmbedding, [1, 96].
  //
  // Throws c10::ValueError where a shape is not so, or tokens cannot be halved.
  std::vector<at::Tensor> forward(const at::Tensor& images,
                                  const at::Tensor& embedding = {}) const;

  std::vector<at::Tensor> Features(const at::Tensor& moving,
                                   const at::Tensor& fixed,
                                   const at::Tensor& embedding) const override;

 private:
  class Level;

  const SwinConfig config_;
  at::Tensor absolute_pos_embed_;  // Undefined without `ape`.
  std::shared_ptr<PatchEmbed> patch_embed_;
  std::shared_ptr<ModuleList<Level>> layers_;
  std::vector<std::shared_ptr<LayerNorm>> norms_;  // One per out_indices.
};

}  // namespace mir::models

#endif  // MIR_MODELS_SWIN_SWIN_TRANSFORMER_H_
