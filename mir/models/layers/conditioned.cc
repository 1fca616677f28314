#include "mir/models/layers/conditioned.h"

#include "mir/models/layers/hyper.h"
#include "mir/models/layers/linear.h"
#include "mir/models/layers/weights.h"

namespace mir::models {
namespace {

constexpr double kNearZero = 1e-5;  // The deviation.

class OwnConvolution : public Convolution, public ConditionedConvolution {
 public:
  using Convolution::Convolution;

  at::Tensor Convolve(const at::Tensor& x, const at::Tensor&) const override {
    return forward(x);
  }
  at::Tensor Convolve(const std::vector<at::Tensor>& features,
                      const at::Tensor&, double negative_slope) const override {
    return forward(features, negative_slope);
  }
};

class GivenConvolution : public HyperConvolution,
                         public ConditionedConvolution {
 public:
  using HyperConvolution::HyperConvolution;

  at::Tensor Convolve(const at::Tensor& x,
                      const at::Tensor& embedding) const override {
    return forward(x, embedding);
  }
  at::Tensor Convolve(const std::vector<at::Tensor>& features,
                      const at::Tensor& embedding,
                      double negative_slope) const override {
    return forward(features, embedding, negative_slope);
  }
};

class OwnLinear : public Linear, public ConditionedLinear {
 public:
  using Linear::Linear;

  at::Tensor Apply(const at::Tensor& x, const at::Tensor&) const override {
    return forward(x);
  }
};

class GivenLinear : public HyperLinear, public ConditionedLinear {
 public:
  using HyperLinear::HyperLinear;

  at::Tensor Apply(const at::Tensor& x,
                   const at::Tensor& embedding) const override {
    return forward(x, embedding);
  }
};

}  // namespace

std::shared_ptr<ConditionedConvolution> AddConvolution(
    torch::nn::Module& parent, const std::string& name,
    const ConvolutionOptions& shape, const ConditionedOptions& options) {
  if (options.hyper) {
    HyperConvolutionOptions hyper;
    hyper.convolution = shape;
    hyper.add_bias = shape.bias;
    hyper.near_zero = options.near_zero;
    return parent.register_module(name,
                                  std::make_shared<GivenConvolution>(hyper));
  }
  const auto own =
      parent.register_module(name, std::make_shared<OwnConvolution>(shape));
  if (options.near_zero) {
    InitNormal(own->weight, 0, kNearZero);
    if (own->bias.defined()) InitConstant(own->bias, 0);
  }
  return own;
}

std::shared_ptr<ConditionedLinear> AddLinear(torch::nn::Module& parent,
                                             const std::string& name,
                                             int64_t inputs, int64_t outputs,
                                             bool bias, bool hyper) {
  if (hyper) {
    return parent.register_module(
        name, std::make_shared<GivenLinear>(inputs, outputs, /*units=*/96,
                                            /*add_bias=*/bias));
  }
  return parent.register_module(
      name, std::make_shared<OwnLinear>(inputs, outputs, bias));
}

}  // namespace mir::models
