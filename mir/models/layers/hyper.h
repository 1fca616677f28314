#ifndef MIR_MODELS_LAYERS_HYPER_H_
#define MIR_MODELS_LAYERS_HYPER_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include "mir/models/layers/convolution.h"
#include "mir/models/layers/linear.h"
#include "mir/models/layers/module_list.h"

// Layers of hypernetworks, whose weights are a function of hyperparameters such
// as the regularizer's weight: one trained network serves all of their values.
//
// Hoopes, Hoffmann, Fischl, Guttag and Dalca, "HyperMorph: amortized
// hyperparameter learning for image registration", IPMI 2021. Names, shapes and
// initial distributions of the parameters are those of MIR's layers in
// HyperMorph, HyperTransMorph and HyperVFA.
//
// They run under autocast, and as float16 or bfloat16 after `to`.
namespace mir::models {

// MIR's HyperBlocks: what the layers below are conditioned on. `layers` linear
// layers (fcs.0, fcs.1, ...) of `units` units, each followed by a ReLU.
class HyperEmbedding : public torch::nn::Module {
 public:
  // Throws c10::ValueError where a number is not positive.
  HyperEmbedding(int64_t hyperparameters, int64_t units, int64_t layers = 6);

  //   hyperparameters  [1, n], or [B, n] with equal rows, n as constructed;
  //                    floating
  //   returns          [1, units]
  //
  // Throws c10::ValueError where the shape is another, or rows differ: all
  // pairs of a batch share one network.
  at::Tensor forward(const at::Tensor& hyperparameters) const;

  int64_t count() const { return count_; }

 private:
  int64_t count_;
  std::shared_ptr<ModuleList<Linear>> layers_;
};

struct HyperConvolutionOptions {
  ConvolutionOptions convolution;
  int64_t units = 96;  // Of the embedding.
  // False leaves the bias out of the sum; its parameter is there all the same.
  bool add_bias = true;
  bool near_zero = false;  // Starts with weights of deviation 1e-5.
};

// MIR's HyperConv (ConvBlock and CustomConv of HyperMorph): a convolution whose
// kernel and bias are linear functions of the embedding, `linear_conv` and
// `linear_bias`.
class HyperConvolution : public torch::nn::Module {
 public:
  // Throws c10::ValueError where an option is out of range.
  explicit HyperConvolution(const HyperConvolutionOptions& options);

  //   input      [N, in_channels, ...]
  //   embedding  [1, units]
  //   returns    [N, out_channels, ...]
  at::Tensor forward(const at::Tensor& input,
                     const at::Tensor& embedding) const;

  // The same for inputs [N, C_i, ...] taken as if concatenated along the
  // channels, and a leaky ReLU of the result; a slope of 1 is none.
  at::Tensor forward(const std::vector<at::Tensor>& inputs,
                     const at::Tensor& embedding, double negative_slope) const;

 private:
  HyperConvolutionOptions options_;
  std::shared_ptr<Linear> linear_conv_, linear_bias_;
};

// MIR's HyperLinear: a linear layer whose weight and bias are linear functions
// of the embedding, `linear_wts` and `linear_bias`.
class HyperLinear : public torch::nn::Module {
 public:
  // Without `add_bias` the bias is left out of the sum; its parameter is there
  // all the same. Throws c10::ValueError where a number is not positive.
  HyperLinear(int64_t inputs, int64_t outputs, int64_t units = 96,
              bool add_bias = true);

  //   x          [..., inputs]
  //   embedding  [1, units]
  //   returns    [..., outputs]
  at::Tensor forward(const at::Tensor& x, const at::Tensor& embedding) const;

 private:
  int64_t inputs_, outputs_;
  bool add_bias_;
  std::shared_ptr<Linear> linear_wts_, linear_bias_;
};

}  // namespace mir::models

#endif  // MIR_MODELS_LAYERS_HYPER_H_
