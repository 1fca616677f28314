#include "mir/models/rank_statistics.h"

#include <torch/nn/module.h>

namespace mir::models {

bool HasRankStatistics(torch::nn::Module& module) {
  if (dynamic_cast<RankStatistics*>(&module) != nullptr) return true;
  for (const auto& child : module.children()) {
    if (HasRankStatistics(*child)) return true;
  }
  return false;
}

void SetSumOverRanks(torch::nn::Module& module, const SumOverRanks& sum) {
  if (auto* statistics = dynamic_cast<RankStatistics*>(&module)) {
    statistics->SetSumOverRanks(sum);
  }
  for (const auto& child : module.children()) SetSumOverRanks(*child, sum);
}

}  // namespace mir::models
