#ifndef MIR_LOSSES_SPARSE_DICE_H_
#define MIR_LOSSES_SPARSE_DICE_H_

#include <ATen/core/ATen_fwd.h>

#include <cstdint>

#include "mir/geometry/warp_options.h"
#include "mir/losses/dice.h"

namespace mir::losses {

struct SparseDiceOptions {
  int64_t max_classes = 16;         // Classes compared in a call, at most.
  bool include_background = false;  // Whether label 0 may be one.
  // Choose among the labels that the target holds; otherwise among all below
  // num_classes.
  bool present_only = true;
  // Where not 0: labels are below it, and where fewer than max_classes are to
  // choose from, further ones fill up, the smallest first, as in MIR.
  int64_t num_classes = 0;
  geometry::WarpConvention convention = geometry::WarpConvention::kExact;
  DiceOptions dice;
};

// Dice of a warped label map and a fixed one on a few classes, without one-hot
// maps of all (MIR's sparse_dice_from_int_labels): binary masks of the chosen
// classes are warped linearly by the displacement.
//
//   moving, fixed  [N, 1, D, H, W] or [N, D, H, W] (or 2-D), integer labels
//   displacement   [N, 3, D, H, W] (or 2-D), floating; in voxels
//   returns        scalar, float32 (float64 for a float64 displacement)
//
// Of more classes than max_classes a random choice is made anew in each call,
// with LibTorch's default CPU generator. Differentiable in the displacement.
// 0 where there is no class to compare. Thread-safe.
//
// Throws c10::ValueError for a shape or label that does not fit or, on the CPU,
// a displacement that is not finite; c10::TypeError for labels that are not
// integers.
class SparseDice {
 public:
  // Throws c10::ValueError for a max_classes that is not positive, or without
  // present_only a num_classes that is not.
  explicit SparseDice(const SparseDiceOptions& options = {});

  at::Tensor operator()(const at::Tensor& moving, const at::Tensor& fixed,
                        const at::Tensor& displacement) const;

 private:
  SparseDiceOptions options_;
};

// float32 [N, K, ...] masks of the voxels of labels [N, 1, ...] that are each
// of K classes (MIR's build_k_hot_from_int).
at::Tensor ClassMasks(const at::Tensor& labels, at::IntArrayRef classes);

}  // namespace mir::losses

#endif  // MIR_LOSSES_SPARSE_DICE_H_
