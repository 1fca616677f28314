#include "mir/models/swin/swin_transformer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <string>

#include "mir/autograd/recompute.h"
#include "mir/models/layers/conditioned.h"

namespace mir::models {
namespace {

class WindowAttention : public RelativeBias {
 public:
  WindowAttention(const SwinConfig& config, int64_t features, int64_t heads)
      : RelativeBias("WindowAttention", WindowOf(config), heads, config.rpe),
        heads_(heads),
        scale_(1 / std::sqrt(double(features / heads))) {
    qkv_ = AddLinear(*this, "qkv", features, 3 * features, config.qkv_bias,
                     config.hyper);
    proj_ = AddLinear(*this, "proj", features, features, /*bias=*/true,
                      config.hyper);
  }

  // [N * windows, tokens, C] in and out; `mask` as for AttentionWeights.
  at::Tensor forward(const at::Tensor& windows, const at::Tensor& mask,
                     const at::Tensor& embedding) const {
    const at::Tensor qkv =
        SplitHeads(qkv_->Apply(windows, embedding), /*parts=*/3, heads_);
    const at::Tensor attention =
        AttentionWeights(qkv[0] * scale_, qkv[1], Bias(), mask);
    return proj_->Apply(JoinHeads(at::matmul(attention, qkv[2])), embedding);
  }

 private:
  const int64_t heads_;
  const double scale_;
  std::shared_ptr<ConditionedLinear> qkv_, proj_;
};

// Attention in windows and an Mlp, each with a shortcut.
class Block : public torch::nn::Module {
 public:
  // `level` and its `block`; `number` counts all blocks.
  Block(const SwinConfig& config, int64_t level, int64_t block, int64_t number)
      : torch::nn::Module("SwinTransformerBlock"),
        window_(WindowOf(config)),
        shift_(ShiftOf(window_, block)) {
    const int64_t features = config.embed_dim << level;
    norm1_ = register_module("norm1", std::make_shared<LayerNorm>(features));
    attn_ =
        register_module("attn", std::make_shared<WindowAttention>(
                                    config, features, config.num_heads[level]));
    drop_path_ = register_module(
        "drop_path", std::make_shared<DropPath>(DropPathRate(config, number)));
    norm2_ = register_module("norm2", std::make_shared<LayerNorm>(features));
    mlp_ = register_module(
        "mlp",
        std::make_shared<Mlp>(features, int64_t(features * config.mlp_ratio),
                              config.drop_rate, config.hyper));
  }

  bool IsShifted() const { return shift_[0] > 0; }

  // [N, D, H, W, C] in and out; `mask` is ShiftMask's, for shifted blocks.
  at::Tensor forward(const at::Tensor& input, const at::Tensor& mask,
                     const at::Tensor& embedding) const {
    const Size3 sizes = {input.size(1), input.size(2), input.size(3)};
    const at::Tensor windows = CutIntoWindows(
        PadAndShift(norm1_->forward(input), window_, shift_), window_);
    const at::Tensor attended = JoinWindows(
        attn_->forward(windows, IsShifted() ? mask : at::Tensor(), embedding),
        sizes, window_, shift_);
    const at::Tensor x = input + drop_path_->forward(attended);
    return x +
           drop_path_->forward(mlp_->forward(norm2_->forward(x), embedding));
  }

 private:
  const Size3 window_, shift_;
  std::shared_ptr<LayerNorm> norm1_, norm2_;
  std::shared_ptr<WindowAttention> attn_;
  std::shared_ptr<DropPath> drop_path_;
  std::shared_ptr<Mlp> mlp_;
};

}  // namespace

// The blocks of one resolution, and the way to the next.
class SwinTransformer::Level : public torch::nn::Module {
 public:
  // `first`: the number of the first block among all.
  Level(const SwinConfig& config, int64_t level, int64_t first)
      : torch::nn::Module("BasicLayer"),
        window_(WindowOf(config)),
        use_checkpoint_(config.use_checkpoint) {
    blocks_ = register_module("blocks", std::make_shared<ModuleList<Block>>());
    for (int64_t block = 0; block < config.depths[level]; ++block) {
      blocks_->Append(
          std::make_shared<Block>(config, level, block, first + block));
    }
    if (level + 1 < int64_t(config.depths.size())) {
      downsample_ = register_module(
          "downsample", std::make_shared<PatchMerging>(
                            config.embed_dim << level, config.pat_merg_rf));
    }
  }

  // [N, D, H, W, C] in and out.
  at::Tensor forward(at::Tensor x, const at::Tensor& embedding) const {
    at::Tensor mask;
    for (const auto& block : *blocks_) {
      if (block->IsShifted() && !mask.defined()) {
        mask = ShiftMask(WholeWindows(x, window_), window_,
                         ShiftOf(window_, /*block=*/1), x.device());
      }
      if (use_checkpoint_) {
        std::vector<at::Tensor> inputs = {x};
        if (embedding.defined()) inputs.push_back(embedding);
        x = autograd::Recompute(
            [block, mask](const std::vector<at::Tensor>& given) {
              return std::vector<at::Tensor>{block->forward(
                  given[0], mask, given.size() > 1 ? given[1] : at::Tensor())};
            },
            inputs, block->parameters())[0];
      } else {
        x = block->forward(x, mask, embedding);
      }
    }
    return x;
  }

  // To the next level; there is one.
  at::Tensor Downsample(const at::Tensor& x) const {
    return downsample_->forward(x);
  }

 private:
  const Size3 window_;
  const bool use_checkpoint_;
  std::shared_ptr<ModuleList<Block>> blocks_;
  std::shared_ptr<PatchMerging> downsample_;
};

SwinTransformer::SwinTransformer(const SwinConfig& config)
    : Backbone("SwinTransformer"), config_(config) {
  const std::string fault = FaultOf(config);
  TORCH_CHECK_VALUE(fault.empty(), "SwinTransformer: ", fault);
  if (config.ape) {
    absolute_pos_embed_ =
        register_parameter("absolute_pos_embed", NewAbsoluteEmbedding(config));
  }
  patch_embed_ = register_module(
      "patch_embed", std::make_shared<PatchEmbed>(config, config.in_chans));
  layers_ = register_module("layers", std::make_shared<ModuleList<Level>>());
  int64_t blocks = 0;
  for (size_t level = 0; level < config.depths.size(); ++level) {
    layers_->Append(std::make_shared<Level>(config, level, blocks));
    blocks += config.depths[level];
  }
  for (const int64_t level : config.out_indices) {
    norms_.push_back(register_module(
        "norm" + std::to_string(level),
        std::make_shared<LayerNorm>(config.embed_dim << level)));
  }
}

std::vector<at::Tensor> SwinTransformer::forward(
    const at::Tensor& images, const at::Tensor& embedding) const {
  CheckImages("SwinTransformer", images, config_.in_chans, config_);
  at::Tensor x = AddPosition(patch_embed_->forward(images, embedding), config_,
                             absolute_pos_embed_, is_training());
  std::vector<at::Tensor> features;
  const int64_t last = config_.out_indices.back();
  for (int64_t level = 0; level <= last; ++level) {
    x = (*layers_)[level].forward(x, embedding);
    const size_t given = features.size();
    if (config_.out_indices[given] == level) {
      features.push_back(norms_[given]->forward(x).permute({0, 4, 1, 2, 3}));
    }
    if (level < last) x = (*layers_)[level].Downsample(x);
  }
  return features;
}

std::vector<at::Tensor> SwinTransformer::Features(
    const at::Tensor& moving, const at::Tensor& fixed,
    const at::Tensor& embedding) const {
  return forward(at::cat({moving, fixed}, /*dim=*/1), embedding);
}

}  // namespace mir::models
