#ifndef MIR_MODELS_SWIN_DEF_SWIN_TRANSFORMER_H_
#define MIR_MODELS_SWIN_DEF_SWIN_TRANSFORMER_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "mir/models/layers/linear.h"
#include "mir/models/layers/module_list.h"
#include "mir/models/swin/backbone.h"
#include "mir/models/swin/swin_config.h"
#include "mir/models/swin/swin_layers.h"

namespace mir::models {

// A Swin transformer with two streams, one per image, that attend to each other
// in deformable windows, with the `state_dict` of MIR's DefSwinTransformer. In
// each block convolutions of both streams give every head an offset per token,
// up to half the volume; queries are sampled there, from the other stream.
//
// Chen, Liu, He and Du, "Deformable cross-attention transformer for medical
// image registration", MLMI 2023. As in MIR, patches have one channel and share
// their embedding, offsets along h are normalised by the size along d and the
// other way round, and a zero offset is not the identity (align_corners=False).
class DefSwinTransformer : public Backbone {
 public:
  // `config.dwin_kernel_size` has an entry per level; `in_chans` and `img_size`
  // are not used. Throws c10::ValueError where the configuration is not right.
  explicit DefSwinTransformer(const SwinConfig& config)
      : DefSwinTransformer("DefSwinTransformer", config,
                           /*both_directions=*/false) {}

  // The features of one level.
  struct Pair {
    at::Tensor moving, fixed;
  };

  // Features of the levels in `out_indices`, from fine to coarse.
  //
  //   moving, fixed  [N, 1, D, H, W]  floating, of equal shape
  //   returns        level i: two of [N, embed_dim 2^i, D / (patch 2^i), ...],
  //                  D / patch rounded up
  //
  // Offsets and sampling are float32 (float64 for float64), under autocast too.
  // Throws c10::ValueError where a shape is not so, or tokens cannot be halved.
  std::vector<Pair> forward(const at::Tensor& moving,
                            const at::Tensor& fixed) const;

  // The sum of both streams.
  std::vector<at::Tensor> Features(
      const at::Tensor& moving, const at::Tensor& fixed,
      const at::Tensor& embedding = {}) const override;

 protected:
  DefSwinTransformer(const char* name, const SwinConfig& config,
                     bool both_directions);

 private:
  class Level;

  const char* const name_;
  const SwinConfig config_;
  at::Tensor absolute_pos_embed_;  // Undefined without `ape`.
  std::shared_ptr<PatchEmbed> patch_embed_;
  std::shared_ptr<ModuleList<Level>> layers_;
  std::vector<std::shared_ptr<LayerNorm>> moving_norms_, fixed_norms_;
};

// The second version: each stream's attention also gathers, transposed, the
// other's values (MIR's DefSwinTransformerV2).
class DefSwinTransformerV2 : public DefSwinTransformer {
 public:
  explicit DefSwinTransformerV2(const SwinConfig& config)
      : DefSwinTransformer("DefSwinTransformerV2", config,
                           /*both_directions=*/true) {}
};

}  // namespace mir::models

#endif  // MIR_MODELS_SWIN_DEF_SWIN_TRANSFORMER_H_
