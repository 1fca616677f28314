#ifndef MIR_MODELS_VOXELMORPH_UNET_H_
#define MIR_MODELS_VOXELMORPH_UNET_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <ATen/ops/upsample_nearest3d.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "mir/models/voxelmorph/vxm_dense.h"
#include "mir/precision/op_fallback.h"

namespace mir::models {

// Blocks that follow each other, under the names 0, 1, ...
template <typename Block>
class VxmBlocks : public torch::nn::Module {
 public:
  VxmBlocks() : torch::nn::Module("VxmBlocks") {}

  void Append(int64_t ndims, int64_t in_channels, int64_t out_channels,
              int64_t stride) {
    blocks_.push_back(register_module(
        std::to_string(blocks_.size()),
        std::make_shared<Block>(ndims, in_channels, out_channels, stride)));
  }

  const std::vector<std::shared_ptr<Block>>& blocks() const { return blocks_; }

 private:
  std::vector<std::shared_ptr<Block>> blocks_;
};

// VoxelMorph's U-Net: `downarm` halves the resolution with each block, `uparm`
// doubles it and takes up what was there on the way down, `extras` works at
// full resolution. A `Block` is a module made from (ndims, in_channels,
// out_channels, stride), whose forward takes features, a list as if
// concatenated along the channels, and the condition.
template <typename Block>
class VxmUnet : public torch::nn::Module {
 public:
  explicit VxmUnet(const VxmDenseConfig& config) : torch::nn::Module("Unet") {
    const int64_t ndims = config.image_size.size();
    const std::vector<int64_t>& encoder = config.encoder_features;
    const std::vector<int64_t>& decoder = config.decoder_features;
    int64_t channels = kImages;

    downarm_ = register_module("downarm", std::make_shared<Blocks>());
    for (const int64_t features : encoder) {
      downarm_->Append(ndims, channels, features, /*stride=*/2);
      channels = features;
    }
    uparm_ = register_module("uparm", std::make_shared<Blocks>());
    for (size_t i = 0; i < encoder.size(); ++i) {
      const int64_t skipped = i == 0 ? 0 : encoder[encoder.size() - 1 - i];
      uparm_->Append(ndims, channels + skipped, decoder[i], /*stride=*/1);
      channels = decoder[i];
    }
    channels += kImages;
    extras_ = register_module("extras", std::make_shared<Blocks>());
    for (size_t i = encoder.size(); i < decoder.size(); ++i) {
      extras_->Append(ndims, channels, decoder[i], /*stride=*/1);
      channels = decoder[i];
    }
  }

  //   x        [N, 2, ...]: moving and fixed image
  //   returns  [N, config.decoder_features.back(), ...]
  template <typename... Condition>
  at::Tensor forward(at::Tensor x, const Condition&... condition) const {
    std::vector<at::Tensor> skipped;
    for (const auto& block : downarm_->blocks()) {
      skipped.push_back(x);
      x = block->forward({x}, condition...);
    }
    std::vector<at::Tensor> features = {x};
    for (const auto& block : uparm_->blocks()) {
      features = {DoubleResolution(block->forward(features, condition...)),
                  skipped.back()};
      skipped.pop_back();
    }
    for (const auto& block : extras_->blocks()) {
      features = {block->forward(features, condition...)};
    }
    return features.front();
  }

 private:
  using Blocks = VxmBlocks<Block>;
  static constexpr int64_t kImages = 2;  // Moving and fixed.

  static at::Tensor DoubleResolution(const at::Tensor& x) {
    std::vector<int64_t> sizes = x.sizes().slice(2).vec();
    for (int64_t& size : sizes) size *= 2;
    if (sizes.size() == 2) return at::upsample_nearest2d(x, sizes);
    return precision::WithFallback(
        precision::Op::kUpsampleNearest3d,
        [&](const at::Tensor& volumes) {
          return at::upsample_nearest3d(volumes, sizes);
        },
        x);
  }

  std::shared_ptr<Blocks> downarm_, uparm_, extras_;
};

}  // namespace mir::models

#endif  // MIR_MODELS_VOXELMORPH_UNET_H_
