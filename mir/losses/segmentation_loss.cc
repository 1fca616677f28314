#include "mir/losses/segmentation_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones_like.h>
#include <c10/util/Exception.h>

#include <vector>

#include "mir/losses/arguments.h"
#include "mir/losses/dice.h"
#include "mir/precision/fp32_region.h"

namespace mir::losses {

SegmentationLoss::SegmentationLoss(const SegmentationLossOptions& options)
    : options_(options) {
  TORCH_CHECK_VALUE(
      options.cross_entropy_weight >= 0 && options.dice_weight >= 0,
      "SegmentationLoss: wanted weights of at least 0, got ",
      options.cross_entropy_weight, " and ", options.dice_weight);
  TORCH_CHECK_VALUE(options.epsilon > 0,
                    "SegmentationLoss: wanted a positive epsilon, got ",
                    options.epsilon);
}

at::Tensor SegmentationLoss::operator()(const at::Tensor& scores,
                                        const at::Tensor& labels) const {
  TORCH_CHECK_VALUE(scores.defined() && scores.numel() > 0 &&
                        (scores.dim() == 4 || scores.dim() == 5),
                    "SegmentationLoss: wanted scores [N, C, D, H, W] or "
                    "[N, C, H, W], and not empty");
  TORCH_CHECK_TYPE(scores.is_floating_point(),
                   "SegmentationLoss: wanted floating-point scores, got ",
                   scores.scalar_type());
  const precision::Fp32Region region;
  const at::Tensor s = precision::ToComputeType(scores);
  CheckFiniteIf(options_.check_finite, "SegmentationLoss", "scores", s);

  at::Tensor valid, known = labels;
  if (options_.ignored_label.has_value() && labels.defined()) {
    valid = labels != *options_.ignored_label;
    known = labels.masked_fill(valid.logical_not(), 0);
  }
  known = CheckedLabels("SegmentationLoss", known, s, s.size(1));
  valid = valid.defined() ? valid.to(s.device()).view(known.sizes())
                          : at::ones_like(known, at::kBool);

  const at::Tensor log_probabilities = s.log_softmax(1);
  at::Tensor loss = ZeroOf(s);
  if (options_.cross_entropy_weight > 0) {
    const at::Tensor entropy =
        WeightedMean(log_probabilities.gather(1, known).neg(), valid);
    loss = loss + options_.cross_entropy_weight * entropy;
  }
  if (options_.dice_weight > 0) {
    std::vector<int64_t> all_but_classes = {0};
    for (int64_t axis = 2; axis < s.dim(); ++axis) {
      all_but_classes.push_back(axis);
    }
    const at::Tensor probabilities = log_probabilities.exp() * valid;
    const at::Tensor counts = SumOverOwnLabel(
        at::ones_like(s.narrow(0, 0, 1)).expand_as(s), known, valid);
    const at::Tensor intersection =
        SumOverOwnLabel(probabilities, known, at::Tensor()).sum(0);
    const at::Tensor sum =
        probabilities.sum(all_but_classes).to(at::kDouble) + counts.sum(0);
    const at::Tensor dice =
        (2 * intersection + options_.epsilon) / (sum + options_.epsilon);
    loss =
        loss + (options_.dice_weight * (1 - dice.mean())).to(s.scalar_type());
  }
  return loss;
}

}  // namespace mir::losses
