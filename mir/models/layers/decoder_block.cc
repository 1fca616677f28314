#include "mir/models/layers/decoder_block.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/instance_norm.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/upsample_trilinear3d.h>

#include "mir/models/layers/batch_norm.h"
#include "mir/precision/op_fallback.h"

namespace mir::models {

Conv3dReLU::Conv3dReLU(int64_t in_channels, int64_t out_channels,
                       BlockNorm norm)
    : torch::nn::Module("Conv3dReLU") {
  ConvolutionOptions options;
  options.in_channels = in_channels;
  options.out_channels = out_channels;
  options.bias = false;
  convolution_ = register_module("0", std::make_shared<Convolution>(options));
  if (norm == BlockNorm::kBatch) {
    batch_norm_ =
        register_module("1", std::make_shared<BatchNorm>(out_channels));
  }
}

at::Tensor Conv3dReLU::forward(const at::Tensor& input) const {
  const at::Tensor features = convolution_->forward(input);
  at::Tensor normal = batch_norm_ != nullptr ? batch_norm_->forward(features)
                                             : InstanceNorm(features);
  // In place: normalisation does not need its output for the gradient.
  return at::leaky_relu_(normal);
}

DecoderBlock::DecoderBlock(int64_t in_channels, int64_t out_channels,
                           int64_t skip_channels)
    : torch::nn::Module("DecoderBlock") {
  conv1_ = register_module(
      "conv1",
      std::make_shared<Conv3dReLU>(in_channels + skip_channels, out_channels));
  conv2_ = register_module(
      "conv2", std::make_shared<Conv3dReLU>(out_channels, out_channels));
}

at::Tensor DecoderBlock::forward(const at::Tensor& input,
                                 const at::Tensor& skip) const {
  return Convolve(DoubleResolution(input), skip);
}

at::Tensor DecoderBlock::Convolve(const at::Tensor& doubled,
                                  const at::Tensor& skip) const {
  return conv2_->forward(conv1_->forward(
      skip.defined() ? at::cat({doubled, skip}, /*dim=*/1) : doubled));
}

at::Tensor DoubleResolution(const at::Tensor& input) {
  return precision::WithFallback(
      precision::Op::kUpsampleTrilinear3d,
      [](const at::Tensor& x) {
        return at::upsample_trilinear3d(
            x, {2 * x.size(2), 2 * x.size(3), 2 * x.size(4)},
            /*align_corners=*/false, /*scales_d=*/2.0, /*scales_h=*/2.0,
            /*scales_w=*/2.0);
      },
      input);
}

at::Tensor InstanceNorm(const at::Tensor& input) {
  return at::instance_norm(input, {}, {}, {}, {}, /*use_input_stats=*/true,
                           /*momentum=*/0.1, /*eps=*/1e-5,
                           /*cudnn_enabled=*/true);
}

}  // namespace mir::models
