#include "mir/models/layers/linear.h"

#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <c10/util/Exception.h>

#include "mir/models/layers/weights.h"

namespace mir::models {

Linear::Linear(int64_t in_features, int64_t out_features, bool with_bias)
    : torch::nn::Module("Linear") {
  TORCH_CHECK_VALUE(
      in_features > 0 && out_features > 0,
      "a linear layer has at least one input and one output, not ", in_features,
      " and ", out_features);
  weight = register_parameter("weight", NewWeight({out_features, in_features}));
  if (with_bias) bias = register_parameter("bias", NewWeight({out_features}));
  InitKaiming(weight, bias);
}

at::Tensor Linear::forward(const at::Tensor& input) const {
  return at::linear(input, weight, bias);
}

LayerNorm::LayerNorm(int64_t size) : torch::nn::Module("LayerNorm") {
  TORCH_CHECK_VALUE(size > 0, "a layer norm has at least one feature, not ",
                    size);
  weight = register_parameter("weight", NewWeight({size}));
  bias = register_parameter("bias", NewWeight({size}));
  InitConstant(weight, 1);
  InitConstant(bias, 0);
}

at::Tensor LayerNorm::forward(const at::Tensor& input) const {
  return at::layer_norm(input, weight.sizes(), weight, bias);
}

}  // namespace mir::models
