#include "mir/models/layers/decoder_block.h"

#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/leaky_relu.h>

#include <utility>

#include "mir/models/layers/batch_norm.h"
#include "mir/models/layers/double_resolution.h"
#include "mir/models/layers/instance_norm.h"
#include "mir/precision/op_fallback.h"

namespace mir::models {
namespace {

constexpr double kNegativeSlope = 0.01;

}  // namespace

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

at::Tensor Conv3dReLU::Normalised(const at::Tensor& features,
                                  double slope) const {
  if (batch_norm_ == nullptr) {
    return InstanceNorm(features, /*weight=*/{}, /*bias=*/{}, slope);
  }
  at::Tensor normal = batch_norm_->forward(features);
  // In place: the normalisation does not need its output for the gradient.
  return slope == 1 ? normal : at::leaky_relu_(normal, slope);
}

at::Tensor Conv3dReLU::forward(const at::Tensor& input,
                               const at::Tensor& embedding) const {
  return Convolve({input}, embedding);
}

at::Tensor Conv3dReLU::Convolve(std::vector<at::Tensor> inputs,
                                const at::Tensor& embedding) const {
  const double before = hyper_ ? kNegativeSlope : 1;
  const double after = hyper_ ? 1 : kNegativeSlope;
  const at::Tensor features = convolution_->Convolve(inputs, embedding, before);
  inputs.clear();  // Their memory is wanted where no gradient is.
  return Normalised(features, after);
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
  return Convolve(DoubleResolution(input, /*align_corners=*/false), skip,
                  embedding);
}

at::Tensor DecoderBlock::Convolve(at::Tensor doubled, const at::Tensor& skip,
                                  const at::Tensor& embedding) const {
  std::vector<at::Tensor> inputs;
  inputs.push_back(std::move(doubled));
  if (skip.defined()) inputs.push_back(skip);
  return conv2_->forward(conv1_->Convolve(std::move(inputs), embedding),
                         embedding);
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

}  // namespace mir::models
