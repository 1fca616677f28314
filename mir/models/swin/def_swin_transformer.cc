#include "mir/models/swin/def_swin_transformer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/grid_sampler.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/stack.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "mir/autograd/recompute.h"
#include "mir/models/layers/batch_norm.h"
#include "mir/models/layers/convolution.h"
#include "mir/models/layers/weights.h"
#include "mir/precision/fp32_region.h"

namespace mir::models {
namespace {

using Pair = DefSwinTransformer::Pair;

constexpr double kOffsetDeviation = 1e-5;

// The convolutions that give offsets (MIR's Offset_block): three numbers for
// each head.
class OffsetBlock : public torch::nn::Module {
 public:
  OffsetBlock(int64_t channels, int64_t heads, int64_t kernel_size)
      : torch::nn::Module("OffsetBlock") {
    const auto convolution = [&](const char* name, int64_t in, int64_t out,
                                 int64_t size) {
      ConvolutionOptions options;
      options.in_channels = in;
      options.out_channels = out;
      options.kernel_size = size;
      options.padding = size / 2;
      options.bias = false;
      auto result =
          register_module(name, std::make_shared<Convolution>(options));
      InitNormal(result->weight, 0, kOffsetDeviation);
      return result;
    };
    conv3d_1_ = convolution("conv3d_1", channels, channels / 2, kernel_size);
    conv3d_2_ =
        convolution("conv3d_2", channels / 2, channels / 4, kernel_size);
    conv3d_3_ = convolution("conv3d_3", channels / 4, 3 * heads, 1);
    bn_1_ = register_module("bn_1", std::make_shared<BatchNorm>(channels / 2));
    bn_2_ = register_module("bn_2", std::make_shared<BatchNorm>(channels / 4));
  }

  // [N, channels, D, H, W] to [N, 3 * heads, D, H, W]
  at::Tensor forward(const at::Tensor& x) const {
    const at::Tensor first = at::relu(bn_1_->forward(conv3d_1_->forward(x)));
    return conv3d_3_->forward(
        at::relu(bn_2_->forward(conv3d_2_->forward(first))));
  }

 private:
  std::shared_ptr<Convolution> conv3d_1_, conv3d_2_, conv3d_3_;
  std::shared_ptr<BatchNorm> bn_1_, bn_2_;
};

// Attention across the streams: queries are of the other stream's deformed
// windows.
class CrossAttention : public RelativeBias {
 public:
  CrossAttention(const SwinConfig& config, int64_t features, int64_t heads,
                 bool both_directions)
      : RelativeBias("WindowAttention", WindowOf(config), heads, config.rpe),
        heads_(heads),
        scale_(1 / std::sqrt(double(features / heads))),
        both_directions_(both_directions) {
    const auto linear = [&](const char* name, int64_t in, int64_t out,
                            bool bias) {
      return register_module(name, std::make_shared<Linear>(in, out, bias));
    };
    m_q_ = linear("m_q", features, features, config.qkv_bias);
    m_kv_ = linear("m_kv", features, 2 * features, config.qkv_bias);
    f_q_ = linear("f_q", features, features, config.qkv_bias);
    f_kv_ = linear("f_kv", features, 2 * features, config.qkv_bias);
    const int64_t gathered = both_directions ? 2 * features : features;
    m_proj_ = linear("m_proj", gathered, features, true);
    f_proj_ = linear("f_proj", gathered, features, true);
  }

  // All [N * windows, tokens, C]; `mask` as for AttentionWeights.
  Pair forward(const Pair& windows, const Pair& deformed,
               const at::Tensor& mask) const {
    const at::Tensor moving =
        SplitHeads(m_kv_->forward(windows.moving), 2, heads_);
    const at::Tensor fixed =
        SplitHeads(f_kv_->forward(windows.fixed), 2, heads_);
    const at::Tensor moving_query =
        SplitHeads(m_q_->forward(deformed.moving), 1, heads_)[0] * scale_;
    const at::Tensor fixed_query =
        SplitHeads(f_q_->forward(deformed.fixed), 1, heads_)[0] * scale_;
    const at::Tensor bias = Bias();
    const at::Tensor to_moving =
        AttentionWeights(fixed_query, moving[0], bias, mask);
    const at::Tensor to_fixed =
        AttentionWeights(moving_query, fixed[0], bias, mask);

    at::Tensor new_moving = JoinHeads(at::matmul(to_moving, moving[1]));
    at::Tensor new_fixed = JoinHeads(at::matmul(to_fixed, fixed[1]));
    if (both_directions_) {
      const at::Tensor back =
          JoinHeads(at::matmul(to_fixed.transpose(2, 3), moving[1]));
      const at::Tensor forth =
          JoinHeads(at::matmul(to_moving.transpose(2, 3), fixed[1]));
      new_moving = at::cat({new_moving, back}, /*dim=*/2);
      new_fixed = at::cat({new_fixed, forth}, /*dim=*/2);
    }
    return {m_proj_->forward(new_moving), f_proj_->forward(new_fixed)};
  }

 private:
  const int64_t heads_;
  const double scale_;
  const bool both_directions_;
  std::shared_ptr<Linear> m_q_, m_kv_, f_q_, f_kv_, m_proj_, f_proj_;
};

// Where each token of each window lies: float [tokens of the volume, 3], with
// (w, h, d) in that order, as grid_sampler wants them.
at::Tensor TokenPositions(const Size3& sizes, const Size3& window,
                          const at::Tensor& like) {
  std::vector<at::Tensor> axes;
  for (int axis = 2; axis >= 0; --axis) {
    std::vector<int64_t> shape(4, 1);
    shape[1 + axis] = sizes[axis];
    axes.push_back(at::arange(sizes[axis], like.options())
                       .view(shape)
                       .expand({1, sizes[0], sizes[1], sizes[2]}));
  }
  return CutIntoWindows(at::stack(axes, /*dim=*/-1), window).reshape({-1, 3});
}

// Samples `features` [N, D, H, W, C] at the tokens' positions plus `offsets`,
// as OffsetBlock gives them: [N * windows, tokens, C].
at::Tensor SampleWindows(const at::Tensor& features, const at::Tensor& offsets,
                         const Size3& window, int64_t heads) {
  const precision::Fp32Region in_float32;
  const at::Tensor x = precision::ToComputeType(features);
  const int64_t batch = x.size(0), channels = x.size(4);
  const Size3 sizes = {x.size(1), x.size(2), x.size(3)};
  const int64_t tokens = window[0] * window[1] * window[2];

  // [N * heads, D, H, W, 3], then in windows, with (w, h, d) last.
  at::Tensor offset =
      precision::ToComputeType(offsets)
          .tanh()
          .reshape({batch * heads, 3, sizes[0], sizes[1], sizes[2]})
          .permute({0, 2, 3, 4, 1});
  offset = CutIntoWindows(offset, window).reshape({batch * heads, -1, 3});
  const at::Tensor positions = TokenPositions(sizes, window, x);
  // MIR divides h by the size along d, and d by that along h.
  const int64_t divisors[] = {sizes[2], sizes[0], sizes[1]};
  std::vector<at::Tensor> grid;
  for (int axis = 0; axis < 3; ++axis) {
    const at::Tensor place =
        positions.select(1, axis) +
        offset.select(2, 2 - axis) * (0.5 * sizes[2 - axis]);
    const int64_t divisor = std::max<int64_t>(divisors[axis] - 1, 1);
    grid.push_back(2 * (place / divisor - 0.5));
  }
  // A head's channels are sampled at the same places.
  const at::Tensor volume = x.permute({0, 4, 1, 2, 3})
                                .reshape({batch * heads, channels / heads,
                                          sizes[0], sizes[1], sizes[2]});
  const at::Tensor sampled = at::grid_sampler(
      volume, at::stack(grid, /*dim=*/-1).view({batch * heads, 1, 1, -1, 3}),
      /*interpolation_mode=*/0, /*padding_mode=*/0, /*align_corners=*/false);
  return sampled.reshape({batch, channels, -1, tokens})
      .permute({0, 2, 3, 1})
      .reshape({-1, tokens, channels})
      .to(features.scalar_type());
}

class Block : public torch::nn::Module {
 public:
  Block(const SwinConfig& config, int64_t level, int64_t block, int64_t number,
        bool both_directions)
      : torch::nn::Module("SwinTransformerBlock"),
        window_(WindowOf(config)),
        shift_(ShiftOf(window_, block)),
        heads_(config.num_heads[level]) {
    const int64_t features = config.embed_dim << level;
    const auto norm = [&](const char* name) {
      return register_module(name, std::make_shared<LayerNorm>(features));
    };
    const auto mlp = [&](const char* name) {
      return register_module(
          name,
          std::make_shared<Mlp>(features, int64_t(features * config.mlp_ratio),
                                config.drop_rate));
    };
    const auto offsets = [&](const char* name) {
      return register_module(
          name, std::make_shared<OffsetBlock>(2 * features, heads_,
                                              config.dwin_kernel_size[level]));
    };
    m_norm1_ = norm("m_norm1");
    f_norm1_ = norm("f_norm1");
    attn_ =
        register_module("attn", std::make_shared<CrossAttention>(
                                    config, features, heads_, both_directions));
    drop_path_ = register_module(
        "drop_path", std::make_shared<DropPath>(DropPathRate(config, number)));
    m_norm2_ = norm("m_norm2");
    f_norm2_ = norm("f_norm2");
    m_mlp_ = mlp("m_mlp");
    f_mlp_ = mlp("f_mlp");
    offset_block_1_ = offsets("offset_block_1");
    offset_block_2_ = offsets("offset_block_2");
  }

  bool IsShifted() const { return shift_[0] > 0; }

  // [N, D, H, W, C] in and out; `mask` is ShiftMask's, for shifted blocks.
  Pair forward(const Pair& input, const at::Tensor& mask) const {
    const Size3 sizes = {input.moving.size(1), input.moving.size(2),
                         input.moving.size(3)};
    const at::Tensor moving =
        PadAndShift(m_norm1_->forward(input.moving), window_, shift_);
    const at::Tensor fixed =
        PadAndShift(f_norm1_->forward(input.fixed), window_, shift_);
    const at::Tensor moving_channels = moving.permute({0, 4, 1, 2, 3});
    const at::Tensor fixed_channels = fixed.permute({0, 4, 1, 2, 3});
    const Pair deformed = {
        SampleWindows(moving,
                      offset_block_1_->forward(at::cat(
                          {moving_channels, fixed_channels}, /*dim=*/1)),
                      window_, heads_),
        SampleWindows(fixed,
                      offset_block_2_->forward(at::cat(
                          {fixed_channels, moving_channels}, /*dim=*/1)),
                      window_, heads_)};
    const Pair attended = attn_->forward(
        {CutIntoWindows(moving, window_), CutIntoWindows(fixed, window_)},
        deformed, IsShifted() ? mask : at::Tensor());

    const auto join = [&](const at::Tensor& shortcut, const at::Tensor& x) {
      return shortcut +
             drop_path_->forward(JoinWindows(x, sizes, window_, shift_));
    };
    const at::Tensor m = join(input.moving, attended.moving);
    const at::Tensor f = join(input.fixed, attended.fixed);
    return {m + drop_path_->forward(m_mlp_->forward(m_norm2_->forward(m))),
            f + drop_path_->forward(f_mlp_->forward(f_norm2_->forward(f)))};
  }

 private:
  const Size3 window_, shift_;
  const int64_t heads_;
  std::shared_ptr<LayerNorm> m_norm1_, f_norm1_, m_norm2_, f_norm2_;
  std::shared_ptr<CrossAttention> attn_;
  std::shared_ptr<DropPath> drop_path_;
  std::shared_ptr<Mlp> m_mlp_, f_mlp_;
  std::shared_ptr<OffsetBlock> offset_block_1_, offset_block_2_;
};

}  // namespace

class DefSwinTransformer::Level : public torch::nn::Module {
 public:
  Level(const SwinConfig& config, int64_t level, int64_t first,
        bool both_directions)
      : torch::nn::Module("BasicLayer"),
        window_(WindowOf(config)),
        use_checkpoint_(config.use_checkpoint) {
    blocks_ = register_module("blocks", std::make_shared<ModuleList<Block>>());
    for (int64_t block = 0; block < config.depths[level]; ++block) {
      blocks_->Append(std::make_shared<Block>(config, level, block,
                                              first + block, both_directions));
    }
    if (level + 1 < int64_t(config.depths.size())) {
      downsample_ = register_module(
          "downsample", std::make_shared<PatchMerging>(
                            config.embed_dim << level, config.pat_merg_rf));
    }
  }

  Pair forward(Pair x) const {
    at::Tensor mask;
    for (const auto& block : *blocks_) {
      if (block->IsShifted() && !mask.defined()) {
        mask = ShiftMask(WholeWindows(x.moving, window_), window_,
                         ShiftOf(window_, /*block=*/1), x.moving.device());
      }
      if (!use_checkpoint_) {
        x = block->forward(x, mask);
        continue;
      }
      const std::vector<at::Tensor> outputs = autograd::Recompute(
          [block, mask](const std::vector<at::Tensor>& inputs) {
            const Pair output = block->forward({inputs[0], inputs[1]}, mask);
            return std::vector<at::Tensor>{output.moving, output.fixed};
          },
          {x.moving, x.fixed}, block->parameters());
      x = {outputs[0], outputs[1]};
    }
    return x;
  }

  // To the next level; there is one.
  Pair Downsample(const Pair& x) const {
    return {downsample_->forward(x.moving), downsample_->forward(x.fixed)};
  }

 private:
  const Size3 window_;
  const bool use_checkpoint_;
  std::shared_ptr<ModuleList<Block>> blocks_;
  std::shared_ptr<PatchMerging> downsample_;
};

DefSwinTransformer::DefSwinTransformer(const char* name,
                                       const SwinConfig& config,
                                       bool both_directions)
    : Backbone(name), name_(name), config_(config) {
  const std::string fault = FaultOf(config);
  TORCH_CHECK_VALUE(fault.empty(), name, ": ", fault);
  TORCH_CHECK_VALUE(config.dwin_kernel_size.size() >= config.depths.size(),
                    name, ": dwin_kernel_size must have one entry for each of ",
                    config.depths.size(), " levels (depths), not ",
                    config.dwin_kernel_size.size());
  TORCH_CHECK_VALUE(config.embed_dim >= 2, name,
                    ": embed_dim must be 2 at least, not ", config.embed_dim);
  if (config.ape) {
    absolute_pos_embed_ =
        register_parameter("absolute_pos_embed", NewAbsoluteEmbedding(config));
  }
  patch_embed_ = register_module(
      "patch_embed", std::make_shared<PatchEmbed>(config, /*in_channels=*/1));
  layers_ = register_module("layers", std::make_shared<ModuleList<Level>>());
  int64_t blocks = 0;
  for (size_t level = 0; level < config.depths.size(); ++level) {
    layers_->Append(
        std::make_shared<Level>(config, level, blocks, both_directions));
    blocks += config.depths[level];
  }
  for (const int64_t level : config.out_indices) {
    const auto norm = [&](const char* prefix) {
      return register_module(
          prefix + std::to_string(level),
          std::make_shared<LayerNorm>(config.embed_dim << level));
    };
    moving_norms_.push_back(norm("m_norm"));
    fixed_norms_.push_back(norm("f_norm"));
  }
}

std::vector<Pair> DefSwinTransformer::forward(const at::Tensor& moving,
                                              const at::Tensor& fixed) const {
  CheckImages(name_, moving, /*channels=*/1, config_);
  TORCH_CHECK_VALUE(moving.sizes() == fixed.sizes(), name_,
                    " wants two images of equal shape, not ", moving.sizes(),
                    " and ", fixed.sizes());
  const auto tokens = [&](const at::Tensor& image) {
    return AddPosition(patch_embed_->forward(image), config_,
                       absolute_pos_embed_, is_training());
  };
  Pair x = {tokens(moving), tokens(fixed)};
  std::vector<Pair> features;
  const int64_t last = config_.out_indices.back();
  for (int64_t level = 0; level <= last; ++level) {
    x = (*layers_)[level].forward(x);
    const size_t given = features.size();
    if (config_.out_indices[given] == level) {
      features.push_back(
          {moving_norms_[given]->forward(x.moving).permute({0, 4, 1, 2, 3}),
           fixed_norms_[given]->forward(x.fixed).permute({0, 4, 1, 2, 3})});
    }
    if (level < last) x = (*layers_)[level].Downsample(x);
  }
  return features;
}

std::vector<at::Tensor> DefSwinTransformer::Features(
    const at::Tensor& moving, const at::Tensor& fixed,
    const at::Tensor& /*embedding*/) const {
  std::vector<at::Tensor> sums;
  for (const Pair& pair : forward(moving, fixed)) {
    sums.push_back(pair.moving + pair.fixed);
  }
  return sums;
}

}  // namespace mir::models
