#ifndef MIR_MODELS_LAYERS_DECODER_BLOCK_H_
#define MIR_MODELS_LAYERS_DECODER_BLOCK_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include "mir/models/layers/conditioned.h"

namespace mir::models {

class BatchNorm;

// Which normalisation follows a convolution.
enum class BlockNorm {
  kInstance,  // Without parameters: each channel of each volume by itself.
  kBatch,     // BatchNorm: weights and running statistics.
};

// A 3-D convolution (3x3x3, stride 1, no bias), a normalisation and a leaky
// ReLU of slope 0.01: MIR's Conv3dReLU. Keys: `0.weight`, with kBatch also
// those of a BatchNorm under `1`. In a hypernetwork the ReLU comes before the
// normalisation, and the keys are `conv` and `nm`.
class Conv3dReLU : public torch::nn::Module {
 public:
  Conv3dReLU(int64_t in_channels, int64_t out_channels,
             BlockNorm norm = BlockNorm::kInstance, bool hyper = false);

  //   input      [N, in_channels, D, H, W]
  //   embedding  of a HyperEmbedding; not looked at without one
  //   returns    [N, out_channels, D, H, W]
  at::Tensor forward(const at::Tensor& input,
                     const at::Tensor& embedding = {}) const;

  // The same for inputs [N, C_i, D, H, W] taken as if concatenated along the
  // channels.
  at::Tensor Convolve(std::vector<at::Tensor> inputs,
                      const at::Tensor& embedding) const;

 private:
  // Normalises, and applies a leaky ReLU of `slope`; 1 is none.
  at::Tensor Normalised(const at::Tensor& features, double slope) const;

  const bool hyper_;
  std::shared_ptr<ConditionedConvolution> convolution_;
  std::shared_ptr<BatchNorm> batch_norm_;  // With kBatch.
};

// Doubles the resolution, appends features of a shortcut, and convolves twice:
// MIR's DecoderBlock (children `conv1` and `conv2`).
class DecoderBlock : public torch::nn::Module {
 public:
  // `skip_channels`: of the shortcut; 0 for none.
  DecoderBlock(int64_t in_channels, int64_t out_channels, int64_t skip_channels,
               bool hyper = false);

  //   input      [N, in_channels, D, H, W]
  //   skip       [N, skip_channels, 2 D, 2 H, 2 W], undefined for none
  //   embedding  as for Conv3dReLU
  //   returns    [N, out_channels, 2 D, 2 H, 2 W]
  at::Tensor forward(const at::Tensor& input, const at::Tensor& skip,
                     const at::Tensor& embedding = {}) const;

  // The same for an input whose resolution is doubled already.
  at::Tensor Convolve(at::Tensor doubled, const at::Tensor& skip,
                      const at::Tensor& embedding = {}) const;

 private:
  std::shared_ptr<Conv3dReLU> conv1_, conv2_;
};

// The mean over kernel_size^3 neighbourhoods at every other voxel, `padding`
// zeros around the volume included: [N, C, D, H, W] to half the size along each
// axis. In float32 at least; comes back in the images' dtype.
at::Tensor AveragePool(const at::Tensor& images, int64_t kernel_size,
                       int64_t padding);

}  // namespace mir::models

#endif  // MIR_MODELS_LAYERS_DECODER_BLOCK_H_
