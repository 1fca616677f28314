#ifndef MIR_MODELS_LAYERS_BATCH_NORM_H_
#define MIR_MODELS_LAYERS_BATCH_NORM_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "mir/models/layers/floating_module.h"
#include "mir/models/rank_statistics.h"

namespace mir::models {

// Batch normalisation (Ioffe and Szegedy, 2015) with the entries of
// torch.nn.BatchNorm3d: `weight`, `bias`, `running_mean`, `running_var` [C] and
// `num_batches_tracked`.
//
// In training, each channel is normalised by its mean and variance over batch
// and volume, and the running statistics follow with momentum 0.1; in
// evaluation by the running statistics. Statistics are float32 at least. A
// second computation (autograd::Recompute) leaves the running ones.
class BatchNorm : public FloatingModule, public RankStatistics {
 public:
  explicit BatchNorm(int64_t channels);

  // [N, C, ...] in and out, of the input's dtype. In training, a single value
  // per channel (over all ranks) is a c10::ValueError.
  at::Tensor forward(const at::Tensor& input);

  at::Tensor weight, bias, running_mean, running_var, num_batches_tracked;
};

}  // namespace mir::models

#endif  // MIR_MODELS_LAYERS_BATCH_NORM_H_
