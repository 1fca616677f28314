#include "mir/models/swin/swin_layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/upsample_trilinear3d.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "mir/models/layers/weights.h"
#include "mir/precision/fp32_region.h"

namespace mir::models {
namespace {

constexpr double kTableDeviation = 0.02;

at::Tensor Dropout(const at::Tensor& x, double rate, bool training) {
  return training && rate > 0 ? at::dropout(x, rate, /*train=*/true) : x;
}

// Zeros appended at the end, so that axes 2 to 4 are multiples of `patch`.
at::Tensor PadToPatches(const at::Tensor& images, int64_t patch) {
  const auto missing = [&](int64_t axis) {
    return (patch - images.size(axis) % patch) % patch;
  };
  const int64_t d = missing(2), h = missing(3), w = missing(4);
  if (d == 0 && h == 0 && w == 0) return images;
  return at::constant_pad_nd(images, {0, w, 0, h, 0, d});
}

// Under autocast the blocks add to tokens in float32: a sum of many terms that
// is rounded to 16 bits after each is what loses most.
at::Tensor WideUnderAutocast(const at::Tensor& tokens) {
  return at::autocast::is_autocast_enabled(tokens.device().type())
             ? precision::ToComputeType(tokens)
             : tokens;
}

}  // namespace

Mlp::Mlp(int64_t features, int64_t hidden_features, double drop_rate,
         bool hyper)
    : torch::nn::Module("Mlp"), drop_rate_(drop_rate) {
  fc1_ =
      AddLinear(*this, "fc1", features, hidden_features, /*bias=*/true, hyper);
  fc2_ =
      AddLinear(*this, "fc2", hidden_features, features, /*bias=*/true, hyper);
}

at::Tensor Mlp::forward(const at::Tensor& input,
                        const at::Tensor& embedding) const {
  const at::Tensor hidden = Dropout(at::gelu(fc1_->Apply(input, embedding)),
                                    drop_rate_, is_training());
  return Dropout(fc2_->Apply(hidden, embedding), drop_rate_, is_training());
}

at::Tensor DropPath::forward(const at::Tensor& input) const {
  if (!is_training() || rate_ == 0) return input;
  std::vector<int64_t> shape(input.dim(), 1);
  shape[0] = input.size(0);
  const double kept = 1 - rate_;
  return input * at::empty(shape, input.options()).bernoulli_(kept).div_(kept);
}

RelativeBias::RelativeBias(const char* name, const Size3& window, int64_t heads,
                           bool rpe)
    : FloatingModule(name) {
  relative_position_bias_table_ =
      register_parameter("relative_position_bias_table",
                         NewWeight({RelativePositions(window), heads}));
  InitTruncatedNormal(relative_position_bias_table_, kTableDeviation);
  if (rpe) {
    relative_position_index_ = register_buffer("relative_position_index",
                                               RelativePositionIndex(window));
  }
}

at::Tensor RelativeBias::Bias() const {
  if (!relative_position_index_.defined()) return at::Tensor();
  const int64_t tokens = relative_position_index_.size(0);
  return at::index_select(relative_position_bias_table_, 0,
                          relative_position_index_.view(-1))
      .view({tokens, tokens, -1})
      .permute({2, 0, 1})
      .contiguous();
}

at::Tensor AttentionWeights(const at::Tensor& query, const at::Tensor& key,
                            const at::Tensor& bias, const at::Tensor& mask) {
  at::Tensor attention = at::matmul(query, key.transpose(-2, -1));
  if (mask.defined()) {
    // [windows, heads or 1, tokens, tokens]
    at::Tensor added = mask.unsqueeze(1).to(
        bias.defined() ? bias.scalar_type() : attention.scalar_type());
    if (bias.defined()) added = added + bias;
    const at::IntArrayRef shape = attention.sizes();
    attention =
        (attention.view({-1, mask.size(0), shape[1], shape[2], shape[3]}) +
         added)
            .view(shape);
  } else if (bias.defined()) {
    attention = attention + bias;
  }
  return at::softmax(attention, /*dim=*/-1);
}

at::Tensor SplitHeads(const at::Tensor& features, int64_t parts,
                      int64_t heads) {
  return features
      .reshape({features.size(0), features.size(1), parts, heads,
                features.size(2) / parts / heads})
      .permute({2, 0, 3, 1, 4});
}

at::Tensor JoinHeads(const at::Tensor& features) {
  return features.transpose(1, 2).flatten(2);
}

PatchMerging::PatchMerging(int64_t features, int64_t reduction_factor)
    : torch::nn::Module("PatchMerging") {
  reduction_ = register_module(
      "reduction",
      std::make_shared<Linear>(8 * features, 8 / reduction_factor * features,
                               /*with_bias=*/false));
  norm_ = register_module("norm", std::make_shared<LayerNorm>(8 * features));
}

at::Tensor PatchMerging::forward(const at::Tensor& features) const {
  const auto even = [&](int64_t axis) { return features.size(axis) % 2 == 0; };
  TORCH_CHECK_VALUE(even(1) && even(2) && even(3),
                    "patch merging wants even numbers of tokens, not ",
                    features.sizes().slice(1, 3));
  // In which order MIR takes the eight neighbours: (d, h, w) of each.
  static constexpr int64_t kOrder[8][3] = {{0, 0, 0}, {1, 0, 0}, {0, 1, 0},
                                           {0, 0, 1}, {1, 1, 0}, {0, 1, 1},
                                           {1, 0, 1}, {1, 1, 1}};
  std::vector<at::Tensor> neighbours;
  for (const auto& [d, h, w] : kOrder) {
    neighbours.push_back(features.slice(1, d, std::nullopt, 2)
                             .slice(2, h, std::nullopt, 2)
                             .slice(3, w, std::nullopt, 2));
  }
  return WideUnderAutocast(
      reduction_->forward(norm_->forward(at::cat(neighbours, /*dim=*/-1))));
}

PatchEmbed::PatchEmbed(const SwinConfig& config, int64_t in_channels)
    : torch::nn::Module("PatchEmbed"), patch_size_(config.patch_size) {
  ConvolutionOptions options;
  options.in_channels = in_channels;
  options.out_channels = config.embed_dim;
  options.kernel_size = options.stride = config.patch_size;
  options.padding = config.hyper ? 1 : 0;
  proj_ = AddConvolution(*this, "proj", options, {.hyper = config.hyper});
  if (config.patch_norm) {
    norm_ =
        register_module("norm", std::make_shared<LayerNorm>(config.embed_dim));
  }
}

at::Tensor PatchEmbed::forward(const at::Tensor& images,
                               const at::Tensor& embedding) const {
  const at::Tensor tokens = WideUnderAutocast(
      proj_->Convolve(PadToPatches(images, patch_size_), embedding)
          .permute({0, 2, 3, 4, 1}));
  return norm_ == nullptr ? tokens : norm_->forward(tokens);
}

at::Tensor SinusoidalEmbedding(const Size3& sizes, int64_t features,
                               at::Device device) {
  // A third of the features for each axis, rounded up to whole pairs.
  const int64_t channels = (features + 5) / 6 * 2;
  std::vector<double> inverse;
  for (int64_t i = 0; i < channels; i += 2) {
    inverse.push_back(1 / std::pow(10000.0, double(i) / channels));
  }
  at::Tensor frequencies = at::empty({int64_t(inverse.size())}, at::kFloat);
  std::copy(inverse.begin(), inverse.end(), frequencies.data_ptr<float>());
  std::vector<at::Tensor> parts;
  for (int axis = 0; axis < 3; ++axis) {
    const at::Tensor angle =
        at::arange(sizes[axis], at::kFloat).unsqueeze(1) * frequencies;
    std::vector<int64_t> shape = {1, 1, 1, channels};
    shape[axis] = sizes[axis];
    parts.push_back(at::cat({angle.sin(), angle.cos()}, /*dim=*/1)
                        .view(shape)
                        .expand({sizes[0], sizes[1], sizes[2], channels}));
  }
  return at::cat(parts, /*dim=*/3).narrow(3, 0, features).to(device);
}

at::Tensor NewAbsoluteEmbedding(const SwinConfig& config) {
  const std::vector<int64_t>& image = config.pretrain_img_size;
  const at::Tensor embedding =
      NewWeight({1, config.embed_dim, image.front() / config.patch_size,
                 image[image.size() / 2] / config.patch_size,
                 image.back() / config.patch_size});
  InitTruncatedNormal(embedding, kTableDeviation);
  return embedding;
}

at::Tensor AddPosition(const at::Tensor& tokens, const SwinConfig& config,
                       const at::Tensor& absolute, bool training) {
  at::Tensor x = tokens;
  const Size3 sizes = {x.size(1), x.size(2), x.size(3)};
  if (config.ape) {
    x = x + at::upsample_trilinear3d(absolute, sizes, /*align_corners=*/false)
                .permute({0, 2, 3, 4, 1});
  } else if (config.spe) {
    x = x +
        SinusoidalEmbedding(sizes, x.size(4), x.device()).to(x.scalar_type());
  }
  return Dropout(x, config.drop_rate, training);
}

Size3 WindowOf(const SwinConfig& config) {
  return {config.window_size[0], config.window_size[1], config.window_size[2]};
}

Size3 ShiftOf(const Size3& window, int64_t block) {
  const Size3 shift = {window[0] / 2, window[1] / 2, window[2] / 2};
  const bool shifted =
      block % 2 == 1 && *std::min_element(shift.begin(), shift.end()) > 0;
  return shifted ? shift : Size3{0, 0, 0};
}

double DropPathRate(const SwinConfig& config, int64_t block) {
  const int64_t blocks =
      std::accumulate(config.depths.begin(), config.depths.end(), int64_t{0});
  return blocks == 1 ? 0 : config.drop_path_rate * block / (blocks - 1);
}

void CheckImages(const char* model, const at::Tensor& images, int64_t channels,
                 const SwinConfig& config) {
  TORCH_CHECK_VALUE(
      images.dim() == 5 && images.size(1) == channels && images.numel() > 0,
      model, " wants images [N, ", channels, ", D, H, W], not ",
      images.sizes());
  TORCH_CHECK_VALUE(images.is_floating_point(), model,
                    " wants floating images, not ", images.scalar_type());
  const int64_t multiple = int64_t{1} << (config.depths.size() - 1);
  for (const int64_t size : images.sizes().slice(2)) {
    const int64_t tokens = (size + config.patch_size - 1) / config.patch_size;
    TORCH_CHECK_VALUE(
        tokens % multiple == 0, model, " halves its tokens at each of its ",
        config.depths.size(),
        " levels (depths), and wants spatial sizes that are "
        "multiples of ",
        multiple * config.patch_size, ", not ", images.sizes().slice(2));
  }
}

}  // namespace mir::models
