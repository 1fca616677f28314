#ifndef MIR_METRICS_DICE_H_
#define MIR_METRICS_DICE_H_

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace mir::metrics {

struct DiceScores {
  std::vector<int64_t> labels;
  // One per label: 2 |a and b| / (|a| + |b|), from 0 to 1. 0 where only one of
  // the two has the label, NaN where neither has it.
  std::vector<double> dice;
  // Over the labels that at least one of the two has: labels that neither has
  // are left out. NaN where `scored` is 0.
  double mean;
  int64_t scored;  // How many labels the mean is over.
};

// The overlap of two segmentations, per label.
//
//   a, b    integer tensors (or bool) of equal shape, of any dtypes and
//           devices; all voxels are counted together, so call it per pair
//   labels  which to score, in this order; by default all that occur in `a` or
//           `b` except 0, the background, in ascending order
//
// Learn2Reg's mean also leaves out labels that the fixed or the unwarped
// moving segmentation lacks: give the labels that both have for the same
// number. MIR's dice_val_VOI counts a label that neither has as 0.
//
// One pass over the voxels, counted exactly. Deterministic. Thread-safe.
//
// Throws c10::ValueError if a tensor is not as above, or a label is given
// twice.
DiceScores Dice(const at::Tensor& a, const at::Tensor& b,
                const std::optional<std::vector<int64_t>>& labels = {});

}  // namespace mir::metrics

#endif  // MIR_METRICS_DICE_H_
