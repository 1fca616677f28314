#ifndef MIR_LOSSES_DICE_H_
#define MIR_LOSSES_DICE_H_

#include <ATen/core/ATen_fwd.h>

#include <cstdint>

namespace mir::losses {

struct DiceOptions {
  bool include_background = true;  // Whether class 0 counts.
  double epsilon = 1e-5;           // Added to the denominators.
  // Leave a class out of the mean where neither map holds any of it;
  // otherwise it counts as a Dice of 0, as in MIR.
  bool skip_absent = true;
  // Throw on a NaN or infinity on a GPU too, which waits for it.
  bool check_finite = false;
};

// One minus the mean, over samples and classes, of the soft Dice coefficient
// 2 |P T| / (|P| + |T|) (Dice, 1945; Milletari et al., "V-Net", 2016; MIR's
// DiceLoss). In [0, 1] for maps in [0, 1]; 0 where no class counts.
//
//   prediction  [N, C, D, H, W] or [N, C, H, W]  floating: probabilities
//   target      the same shape, floating; or integer labels in [0, C),
//               [N, 1, D, H, W] or [N, D, H, W] (or 2-D)
//   returns     scalar, float32 (float64 for a float64 prediction)
//
// No one-hot map is made of labels. Sums are float64 for labels, under any
// autocast. Differentiable in prediction and a floating target. Thread-safe.
//
// Throws c10::ValueError if a shape is not as above, a label is outside its
// range or, on the CPU, a value is not finite; c10::TypeError for an integer
// prediction.
class Dice {
 public:
  // Throws c10::ValueError for an epsilon that is not positive.
  explicit Dice(const DiceOptions& options = {});

  at::Tensor operator()(const at::Tensor& prediction,
                        const at::Tensor& target) const;

 private:
  DiceOptions options_;
};

// The labels of a map as [N, 1, ...] int64 in [0, classes). `wanted` has the
// shape that they must fit, [N, C, ...]. Throws c10::ValueError or
// c10::TypeError otherwise; `loss` begins the message.
at::Tensor CheckedLabels(const char* loss, const at::Tensor& labels,
                         const at::Tensor& wanted, int64_t classes);

// For labels [N, 1, ...], which must be in range, and values [N, C, ...]:
// float64 [N, C] sums of the values of each class over its own voxels. Where
// `counted` is defined (bool [N, 1, ...]), over those alone.
at::Tensor SumOverOwnLabel(const at::Tensor& values, const at::Tensor& labels,
                           const at::Tensor& counted);

}  // namespace mir::losses

#endif  // MIR_LOSSES_DICE_H_
