#include "mir/models/vfa/blocks.h"

#include "mir/models/layers/convolution.h"
#include "mir/models/layers/instance_norm.h"
#include "mir/models/layers/weights.h"

namespace mir::models {

std::shared_ptr<ConditionedConvolution> AddConvolution(
    torch::nn::Module& parent, const std::string& name,
    const VfaBlockOptions& options, int64_t in_channels, int64_t out_channels) {
  ConvolutionOptions shape;
  shape.ndims = options.ndims;
  shape.in_channels = in_channels;
  shape.out_channels = out_channels;
  return AddConvolution(parent, name, shape, {.hyper = options.hyper});
}

AffineInstanceNorm::AffineInstanceNorm(int64_t channels)
    : torch::nn::Module("AffineInstanceNorm") {
  weight_ = register_parameter("weight", NewWeight({channels}));
  bias_ = register_parameter("bias", NewWeight({channels}));
  InitConstant(weight_, 1);
  InitConstant(bias_, 0);
}

at::Tensor AffineInstanceNorm::forward(const at::Tensor& x,
                                       double negative_slope) const {
  return InstanceNorm(x, weight_, bias_, negative_slope);
}

DoubleConvolution::DoubleConvolution(const VfaBlockOptions& options,
                                     int64_t in_channels, int64_t mid_channels,
                                     int64_t out_channels)
    : torch::nn::Module("DoubleConvolution") {
  conv1_ = AddConvolution(*this, "conv1", options, in_channels, mid_channels);
  norm1_ = register_module("norm1",
                           std::make_shared<AffineInstanceNorm>(mid_channels));
  conv2_ = AddConvolution(*this, "conv2", options, mid_channels, out_channels);
  norm2_ = register_module("norm2",
                           std::make_shared<AffineInstanceNorm>(out_channels));
}

at::Tensor DoubleConvolution::forward(const std::vector<at::Tensor>& features,
                                      const at::Tensor& embedding) const {
  const at::Tensor x = norm1_->forward(
      conv1_->Convolve(features, embedding, /*negative_slope=*/1),
      kNegativeSlope);
  return norm2_->forward(conv2_->Convolve(x, embedding), kNegativeSlope);
}

}  // namespace mir::models
