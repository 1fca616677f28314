#include "mir/models/vfa/blocks.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/instance_norm.h>
#include <ATen/ops/leaky_relu.h>

#include "mir/models/layers/convolution.h"
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

at::Tensor AffineInstanceNorm::forward(const at::Tensor& x) const {
  return at::instance_norm(x, weight_, bias_, /*running_mean=*/{},
                           /*running_var=*/{}, /*use_input_stats=*/true,
                           /*momentum=*/0.1, /*eps=*/1e-5,
                           /*cudnn_enabled=*/true);
}

at::Tensor LeakyRelu(at::Tensor x) {
  constexpr double kSlope = 0.01;
  if (x.requires_grad() && at::GradMode::is_enabled()) {
    return at::leaky_relu(x, kSlope);
  }
  return at::leaky_relu_(x, kSlope);
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

at::Tensor DoubleConvolution::forward(const at::Tensor& x,
                                      const at::Tensor& embedding) const {
  const at::Tensor y =
      LeakyRelu(norm1_->forward(conv1_->Convolve(x, embedding)));
  return LeakyRelu(norm2_->forward(conv2_->Convolve(y, embedding)));
}

}  // namespace mir::models
