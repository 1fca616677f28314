#ifndef MIR_LOSSES_SEGMENTATION_LOSS_H_
#define MIR_LOSSES_SEGMENTATION_LOSS_H_

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <optional>

namespace mir::losses {

struct SegmentationLossOptions {
  double cross_entropy_weight = 1;
  double dice_weight = 1;
  std::optional<int64_t> ignored_label;  // Voxels that do not count.
  double epsilon = 1e-6;                 // Of the Dice: in both terms.
  // Throw on a NaN or infinity on a GPU too, which waits for it.
  bool check_finite = false;
};

// Cross-entropy plus soft Dice of a segmentation network's scores (MIR's
// SegmentationLoss; with a cross_entropy_weight of 0, its DiceSegLoss):
//
//   a mean over voxels of -log softmax(scores)[label]
//   + b (1 - mean over classes of (2 |P T| + e) / (|P| + |T| + e))
//
// with the Dice's sums over batch and voxels. At least 0; the Dice in [0, 1].
// Where all voxels are ignored the loss is 0.
//
//   scores   [N, C, D, H, W] or [N, C, H, W]  floating: before the softmax
//   labels   [N, 1, D, H, W] or [N, D, H, W] (or 2-D), integers in [0, C), or
//            the ignored label
//   returns  scalar, float32 (float64 for float64 scores)
//
// Differentiable in the scores. Thread-safe. Throws c10::ValueError for a
// shape or label that does not fit or, on the CPU, a score that is not finite;
// c10::TypeError for integer scores or floating labels.
class SegmentationLoss {
 public:
  // Throws c10::ValueError for a negative weight or an epsilon that is not
  // positive.
  explicit SegmentationLoss(const SegmentationLossOptions& options = {});

  at::Tensor operator()(const at::Tensor& scores,
                        const at::Tensor& labels) const;

 private:
  SegmentationLossOptions options_;
};

}  // namespace mir::losses

#endif  // MIR_LOSSES_SEGMENTATION_LOSS_H_
