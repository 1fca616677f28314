#ifndef MIR_MODELS_VFA_BLOCKS_H_
#define MIR_MODELS_VFA_BLOCKS_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "mir/models/layers/conditioned.h"

namespace mir::models {

// What the layers of a Vfa have in common.
struct VfaBlockOptions {
  int64_t ndims = 3;
  bool hyper = false;
};

// Adds a convolution with a kernel of 3 and padding of 1 along each axis.
std::shared_ptr<ConditionedConvolution> AddConvolution(
    torch::nn::Module& parent, const std::string& name,
    const VfaBlockOptions& options, int64_t in_channels, int64_t out_channels);

// The slope of the leaky ReLUs.
inline constexpr double kNegativeSlope = 0.01;

// Normalises each channel of each volume, and scales and shifts it by `weight`
// and `bias` (torch.nn.InstanceNorm with affine=True).
class AffineInstanceNorm : public torch::nn::Module {
 public:
  explicit AffineInstanceNorm(int64_t channels);

  // [N, channels, ...], in and out; then a leaky ReLU, a slope of 1 is none.
  at::Tensor forward(const at::Tensor& x, double negative_slope) const;

 private:
  at::Tensor weight_, bias_;
};

// Twice convolution, normalisation and leaky ReLU: `conv1`, `norm1`, `conv2`,
// `norm2`.
class DoubleConvolution : public torch::nn::Module {
 public:
  DoubleConvolution(const VfaBlockOptions& options, int64_t in_channels,
                    int64_t mid_channels, int64_t out_channels);

  // Takes features as if concatenated along the channels.
  at::Tensor forward(const std::vector<at::Tensor>& features,
                     const at::Tensor& embedding) const;

 private:
  std::shared_ptr<ConditionedConvolution> conv1_, conv2_;
  std::shared_ptr<AffineInstanceNorm> norm1_, norm2_;
};

}  // namespace mir::models

#endif  // MIR_MODELS_VFA_BLOCKS_H_
