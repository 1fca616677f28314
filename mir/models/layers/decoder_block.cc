#include "mir/models/layers/decoder_block.h"

#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/instance_norm.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/upsample_trilinear3d.h>

#include "mir/models/layers/batch_norm.h"
#include "mir/precision/op_fallback.h"

namespace mir::models {

Conv3dReLU::Conv3dReLU(int64_t in_channels, int64_t out_channels,
                       BlockNorm norm, bool hyper)
    : torch::nn::Module("Conv3dReLU"), hyper_(hyper) {
  ConvolutionOptions options;
  options.in_channels = in_channels;
  options.out_channels = out_channels;
  options.bias = false;
  convolution_ =
      AddConvolution(*this, hyper ? "conv" : "0", options, {.hyper = hyper});
  if (norm == BlockNorm::kBatch) {
    batch_norm_ = register_module(hyper ? "nm" : "1",
                                  std::make_shared<BatchNorm>(out_channels));
  }
}

at::Tensor Conv3dReLU::Normalised(const at::Tensor& features) const {
  return batch_norm_ != nullptr ? batch_norm_->forward(features)
                                : InstanceNorm(features);
}

at::Tensor Conv3dReLU::forward(const at::Tensor& input,
                               const at::Tensor& embedding) const {
  at::Tensor features = convolution_->Convolve(input, embedding);
  // In place: neither the convolution nor the normalisation needs its output
  // for the gradient.
  if (hyper_) return Normalised(at::leaky_relu_(features));
  at::Tensor normal = Normalised(features);
  return at::leaky_relu_(normal);
}

DecoderBlock::DecoderBlock(int64_t in_channels, int64_t out_channels,
                           int64_t skip_channels, bool hyper)
    : torch::nn::Module("DecoderBlock") {
  const auto convolution = [&](const char* name, int64_t inputs) {
    return register_module(
        name, std::make_shared<Conv3dReLU>(inputs, out_channels,
                                           BlockNorm::kInstance, hyper));
  };
  conv1_ = convolution("conv1", in_channels + skip_channels);
  conv2_ = convolution("conv2", out_channels);
}

at::Tensor DecoderBlock::forward(const at::Tensor& input,
                                 const at::Tensor& skip,
                                 const at::Tensor& embedding) const {
  return Convolve(DoubleResolution(input), skip, embedding);
}

at::Tensor DecoderBlock::Convolve(const at::Tensor& doubled,
                                  const at::Tensor& skip,
                                  const at::Tensor& embedding) const {
  const at::Tensor x =
      skip.defined() ? at::cat({doubled, skip}, /*dim=*/1) : doubled;
  return conv2_->forward(conv1_->forward(x, embedding), embedding);
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

at::Tensor AveragePool(const at::Tensor& images, int64_t kernel_size,
                       int64_t padding) {
  return precision::WithFallback(
      precision::Op::kAveragePool3d,
      [&](const at::Tensor& x) {
        return at::avg_pool3d(x, kernel_size, /*stride=*/2, padding);
      },
      images);
}

at::Tensor InstanceNorm(const at::Tensor& input) {
  return at::instance_norm(input, {}, {}, {}, {}, /*use_input_stats=*/true,
                           /*momentum=*/0.1, /*eps=*/1e-5,
                           /*cudnn_enabled=*/true);
}

}  // namespace mir::models
