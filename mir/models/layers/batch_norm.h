#ifndef MIR_MODELS_LAYERS_BATCH_NORM_H_
#define MIR_MODELS_LAYERS_BATCH_NORM_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>

#include "mir/models/layers/floating_module.h"

namespace mir::models {

// Adds a tensor over all ranks, in place, on each the same; every rank calls
// it in the same order. float32 or float64, of one dimension.
using SumOverRanks = std::function<void(at::Tensor& sums)>;

// Batch normalisation (Ioffe and Szegedy, 2015) with the entries of
// torch.nn.BatchNorm3d: `weight`, `bias`, `running_mean`, `running_var` [C] and
// `num_batches_tracked`.
//
// In training, each channel is normalised by its mean and variance over batch
// and volume, and the running statistics follow with momentum 0.1; in
// evaluation by the running statistics. Statistics are float32 at least. A
// second computation (autograd::Recompute) leaves the running ones.
class BatchNorm : public FloatingModule {
 public:
  explicit BatchNorm(int64_t channels);

  // [N, C, ...] in and out, of the input's dtype. In training, a single value
  // per channel (over all ranks) is a c10::ValueError.
  at::Tensor forward(const at::Tensor& input);

  // From now on, training takes mean and variance over the batches of all
  // ranks, in the gradient too (as torch.nn.SyncBatchNorm); an empty function
  // ends that. `weight` and `bias` have the gradients of the own batch.
  void SetSumOverRanks(SumOverRanks sum) { sum_over_ranks_ = std::move(sum); }

  at::Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  SumOverRanks sum_over_ranks_;
};

// Sets it for every BatchNorm in `module`.
void SetSumOverRanks(torch::nn::Module& module, const SumOverRanks& sum);

}  // namespace mir::models

#endif  // MIR_MODELS_LAYERS_BATCH_NORM_H_
