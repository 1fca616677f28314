#include "mir/models/layers/hyper.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <c10/util/Exception.h>

#include "mir/models/layers/weights.h"

namespace mir::models {
namespace {

constexpr double kNearZero = 1e-5;  // The deviation.

}  // namespace

HyperEmbedding::HyperEmbedding(int64_t hyperparameters, int64_t units,
                               int64_t layers)
    : torch::nn::Module("HyperEmbedding"), count_(hyperparameters) {
  TORCH_CHECK_VALUE(layers > 0, "a hypernetwork wants at least one layer, not ",
                    layers);
  layers_ = register_module("fcs", std::make_shared<ModuleList<Linear>>());
  for (int64_t i = 0; i < layers; ++i) {
    layers_->Append(
        std::make_shared<Linear>(i == 0 ? hyperparameters : units, units));
  }
}

at::Tensor HyperEmbedding::forward(const at::Tensor& hyperparameters) const {
  TORCH_CHECK_VALUE(hyperparameters.dim() == 2 && hyperparameters.size(0) > 0 &&
                        hyperparameters.size(1) == count_ &&
                        hyperparameters.is_floating_point(),
                    "wanted hyperparameters [1, ", count_, "] or [N, ", count_,
                    "], floating, got ", hyperparameters.scalar_type(), " ",
                    hyperparameters.sizes());
  const at::Tensor first = hyperparameters.narrow(0, 0, 1);
  TORCH_CHECK_VALUE(
      hyperparameters.size(0) == 1 ||
          at::equal(hyperparameters, first.expand_as(hyperparameters)),
      "the pairs of a batch share one network, so the rows of their "
      "hyperparameters must be equal, not ",
      hyperparameters.size(0),
      " rows that differ; run pairs with other hyperparameters in batches of "
      "their own");
  at::Tensor x = first.to((*layers_)[0].weight.scalar_type());
  for (const auto& layer : *layers_) x = at::relu(layer->forward(x));
  return x;
}

HyperConvolution::HyperConvolution(const HyperConvolutionOptions& options)
    : torch::nn::Module("HyperConvolution"), options_(options) {
  const ConvolutionOptions& shape = options.convolution;
  CheckOptions(shape);
  int64_t kernel = shape.in_channels * shape.out_channels;
  for (int64_t axis = 0; axis < shape.ndims; ++axis) {
    kernel *= shape.kernel_size;
  }
  linear_conv_ = register_module(
      "linear_conv",
      std::make_shared<Linear>(options.units, kernel, /*with_bias=*/false));
  linear_bias_ = register_module(
      "linear_bias", std::make_shared<Linear>(options.units, shape.out_channels,
                                              /*with_bias=*/false));
  if (options.near_zero) {
    InitNormal(linear_conv_->weight, 0, kNearZero);
    InitNormal(linear_bias_->weight, 0, kNearZero);
  }
}

at::Tensor HyperConvolution::forward(const at::Tensor& input,
                                     const at::Tensor& embedding) const {
  const ConvolutionOptions& shape = options_.convolution;
  std::vector<int64_t> kernel(2 + shape.ndims, shape.kernel_size);
  kernel[0] = shape.out_channels;
  kernel[1] = shape.in_channels;
  const at::Tensor out =
      Convolve(input, linear_conv_->forward(embedding).reshape(kernel),
               /*bias=*/at::Tensor(), shape);
  if (!options_.add_bias) return out;
  std::vector<int64_t> per_channel(2 + shape.ndims, 1);
  per_channel[1] = shape.out_channels;
  return out + linear_bias_->forward(embedding).view(per_channel);
}

at::Tensor HyperConvolution::forward(const std::vector<at::Tensor>& inputs,
                                     const at::Tensor& embedding,
                                     double negative_slope) const {
  at::Tensor out =
      forward(inputs.size() == 1 ? inputs.front() : at::cat(inputs, /*dim=*/1),
              embedding);
  // In place: nothing else needs the sum.
  return negative_slope == 1 ? out : at::leaky_relu_(out, negative_slope);
}

HyperLinear::HyperLinear(int64_t inputs, int64_t outputs, int64_t units,
                         bool add_bias)
    : torch::nn::Module("HyperLinear"),
      inputs_(inputs),
      outputs_(outputs),
      add_bias_(add_bias) {
  linear_wts_ = register_module(
      "linear_wts", std::make_shared<Linear>(units, inputs * outputs,
                                             /*with_bias=*/false));
  linear_bias_ = register_module(
      "linear_bias",
      std::make_shared<Linear>(units, outputs, /*with_bias=*/false));
}

at::Tensor HyperLinear::forward(const at::Tensor& x,
                                const at::Tensor& embedding) const {
  const at::Tensor weight =
      linear_wts_->forward(embedding).reshape({outputs_, inputs_});
  const at::Tensor out = at::matmul(x, weight.t());
  if (!add_bias_) return out;
  return out + linear_bias_->forward(embedding).view({outputs_});
}

}  // namespace mir::models
