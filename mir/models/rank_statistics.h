#ifndef MIR_MODELS_RANK_STATISTICS_H_
#define MIR_MODELS_RANK_STATISTICS_H_

#include <ATen/core/ATen_fwd.h>

#include <functional>
#include <utility>

namespace torch::nn {
class Module;
}

namespace mir::models {

// Adds a tensor over all ranks, in place, on each the same; every rank calls
// it in the same order. float32 or float64, of one dimension.
using SumOverRanks = std::function<void(at::Tensor& sums)>;

// A module that normalises by statistics of a batch, and can take them over
// the batches of all ranks.
class RankStatistics {
 public:
  virtual ~RankStatistics() = default;

  // From now on, training takes mean and variance over the batches of all
  // ranks, in the gradient too (as torch.nn.SyncBatchNorm); an empty function
  // ends that. `weight` and `bias` have the gradients of the own batch.
  void SetSumOverRanks(SumOverRanks sum) { sum_over_ranks_ = std::move(sum); }

 protected:
  const SumOverRanks& sum_over_ranks() const { return sum_over_ranks_; }

 private:
  SumOverRanks sum_over_ranks_;
};

// Whether `module` or one inside it is such a module.
bool HasRankStatistics(torch::nn::Module& module);

// Sets it for every such module in `module`.
void SetSumOverRanks(torch::nn::Module& module, const SumOverRanks& sum);

}  // namespace mir::models

#endif  // MIR_MODELS_RANK_STATISTICS_H_
