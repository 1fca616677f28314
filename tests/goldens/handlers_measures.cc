#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "mir/metrics/dice.h"
#include "tests/goldens/handlers.h"

namespace mir::goldens {
namespace {

std::vector<int64_t> LabelsBetween(int64_t first, int64_t last) {
  std::vector<int64_t> labels(last - first + 1);
  std::iota(labels.begin(), labels.end(), first);
  return labels;
}

// MIR counts a label that neither segmentation has as 0.
void DiceOfMir(GoldenRun& run) {
  const at::Tensor pred = run.In("pred").to(at::kLong);
  const at::Tensor truth = run.In("true").to(at::kLong);
  const auto dice = [&](const std::vector<int64_t>& labels) {
    return at::tensor(metrics::Dice(pred, truth, labels).dice).nan_to_num(0);
  };
  run.Out("voi_default", dice(LabelsBetween(1, 3)).mean());
  run.Out("voi", dice({1, 2, 5, 29, 40}).mean());
  run.Out("all", dice(LabelsBetween(0, 30)).mean());
  run.Out("substruct", dice(LabelsBetween(0, 30)));
}

}  // namespace

HandlerTable MeasureHandlers() { return {{"acc_dice", DiceOfMir}}; }

}  // namespace mir::goldens
