#ifndef MIR_MODELS_SWIN_SWIN_LAYERS_H_
#define MIR_MODELS_SWIN_SWIN_LAYERS_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>

#include "mir/models/layers/conditioned.h"
#include "mir/models/layers/floating_module.h"
#include "mir/models/layers/linear.h"
#include "mir/models/swin/swin_config.h"
#include "mir/models/swin/windows.h"

// What the Swin backbones share. Under autocast, tokens that the blocks add to
// are float32. Features are [N, D, H, W, C] unless said; an
// embedding is that of a HyperEmbedding, which layers without `hyper` do not
// look at.
namespace mir::models {

// Two linear layers with a GELU between, on the last axis (MIR's Mlp). Dropout
// after each, in training.
class Mlp : public torch::nn::Module {
 public:
  Mlp(int64_t features, int64_t hidden_features, double drop_rate,
      bool hyper = false);
  at::Tensor forward(const at::Tensor& input,
                     const at::Tensor& embedding = {}) const;

 private:
  const double drop_rate_;
  std::shared_ptr<ConditionedLinear> fc1_, fc2_;
};

// Zeroes each sample with probability `rate` in training, and scales the others
// by 1 / (1 - rate): stochastic depth (Huang et al., ECCV 2016).
class DropPath : public torch::nn::Module {
 public:
  explicit DropPath(double rate) : torch::nn::Module("DropPath"), rate_(rate) {}
  at::Tensor forward(const at::Tensor& input) const;

 private:
  const double rate_;
};

// The bias that an attention adds by relative position: what WindowAttention
// and its deformable kin have in common.
class RelativeBias : public FloatingModule {
 public:
  // float32 [heads, tokens, tokens], under autocast too (as wide as the table
  // else); undefined without `rpe`.
  at::Tensor Bias() const;

 protected:
  // Without `rpe` there is a table that nothing uses, as in MIR.
  RelativeBias(const char* name, const Size3& window, int64_t heads, bool rpe);

 private:
  at::Tensor relative_position_bias_table_;  // [positions, heads]
  at::Tensor relative_position_index_;       // int64 [tokens, tokens]
};

// Attention weights: softmax(query key^T + bias + mask).
//
//   query    [N * windows, heads, tokens, features of a head], scaled
//   key      likewise
//   bias     [heads, tokens, tokens], or undefined
//   mask     [windows, tokens, tokens], or undefined
//   returns  [N * windows, heads, tokens, tokens]
at::Tensor AttentionWeights(const at::Tensor& query, const at::Tensor& key,
                            const at::Tensor& bias, const at::Tensor& mask);

// [N, tokens, parts * C] to [parts, N, heads, tokens, C / heads].
at::Tensor SplitHeads(const at::Tensor& features, int64_t parts, int64_t heads);

// [N, heads, tokens, features of a head] to [N, tokens, C].
at::Tensor JoinHeads(const at::Tensor& features);

// Eight neighbouring tokens become one: MIR's PatchMerging.
class PatchMerging : public torch::nn::Module {
 public:
  PatchMerging(int64_t features, int64_t reduction_factor);

  // [N, D, H, W, C] to [N, D / 2, H / 2, W / 2, 8 / reduction_factor * C]. Odd
  // sizes are a c10::ValueError, as in MIR.
  at::Tensor forward(const at::Tensor& features) const;

 private:
  std::shared_ptr<Linear> reduction_;
  std::shared_ptr<LayerNorm> norm_;
};

// Cuts images into patches, each of which becomes a token: MIR's PatchEmbed.
// With `config.hyper` the patches begin a voxel before the image, at a zero, as
// in MIR; their number is the same.
class PatchEmbed : public torch::nn::Module {
 public:
  PatchEmbed(const SwinConfig& config, int64_t in_channels);

  // [N, in_channels, D, H, W] to [N, D / patch, H / patch, W / patch, C],
  // rounded up: zeros are appended at the end of each axis.
  at::Tensor forward(const at::Tensor& images,
                     const at::Tensor& embedding = {}) const;

 private:
  const int64_t patch_size_;
  std::shared_ptr<ConditionedConvolution> proj_;
  std::shared_ptr<LayerNorm> norm_;  // Null without `patch_norm`.
};

// What is added to the features of a grid of tokens, [D, H, W, C] float32:
// sines and cosines of the position along each axis, a third of the features
// for each.
at::Tensor SinusoidalEmbedding(const Size3& sizes, int64_t features,
                               at::Device device);

// The learnt embedding [1, C, D, H, W] that `ape` adds, before its resizing.
at::Tensor NewAbsoluteEmbedding(const SwinConfig& config);

// Tokens with their position: `config.ape` resizes `absolute` (trilinear) and
// adds it, `config.spe` adds SinusoidalEmbedding; then dropout.
at::Tensor AddPosition(const at::Tensor& tokens, const SwinConfig& config,
                       const at::Tensor& absolute, bool training);

// What both backbones derive from a configuration.
Size3 WindowOf(const SwinConfig& config);
// Half a window where the block's number within its level is odd, else none;
// none either where a side of the window is 1.
Size3 ShiftOf(const Size3& window, int64_t block);
// The stochastic depth of block `block` of all.
double DropPathRate(const SwinConfig& config, int64_t block);

// Throws c10::ValueError unless `images` is floating [N, channels, D, H, W]
// with at least one voxel, and its tokens, D / patch rounded up and so on, can
// be halved at each level.
void CheckImages(const char* model, const at::Tensor& images, int64_t channels,
                 const SwinConfig& config);

}  // namespace mir::models

#endif  // MIR_MODELS_SWIN_SWIN_LAYERS_H_
