#ifndef MIR_MODELS_VFA_DECODER_H_
#define MIR_MODELS_VFA_DECODER_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include "mir/models/vfa/blocks.h"

namespace mir::models {

struct VfaDecoderOptions {
  VfaBlockOptions block;
  std::vector<int64_t> features;  // Channels per level, finest first.
  std::vector<int64_t> matched;   // Channels that are compared, likewise.
  double initialize = 0.1;        // The first `beta`.
  bool skip = false;              // No matching at the finest level.
  int64_t integration_steps = 0;  // Of each level's grid with itself.
};

// Matches features level by level, coarsest first, and composes what it finds.
// Parameters: `beta` [1] and the convolutions `project.0`, `project.1`, ...
class VfaDecoder : public torch::nn::Module {
 public:
  explicit VfaDecoder(const VfaDecoderOptions& options);

  // Sampling grids (geometry/vfa_sampling.h) after each level, coarsest first;
  // each but the last brought to the resolution of the next. The last reads the
  // moving image for each voxel of the fixed one.
  //
  //   fixed, moving  features per level, finest first; each half the
  //                  resolution of the one before, the last with at least 2
  //                  voxels along each axis
  //   embedding      as for ConditionedConvolution
  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& fixed,
                                  const std::vector<at::Tensor>& moving,
                                  const at::Tensor& embedding) const;

 private:
  const VfaDecoderOptions options_;
  at::Tensor beta_;
  std::vector<std::shared_ptr<ConditionedConvolution>> project_;
};

}  // namespace mir::models

#endif  // MIR_MODELS_VFA_DECODER_H_
