#ifndef MIR_LOSSES_PCC_H_
#define MIR_LOSSES_PCC_H_

#include <ATen/core/ATen_fwd.h>

namespace mir::losses {

struct PccOptions {
  // Throw on a NaN or infinity on a GPU too, which waits for it.
  bool check_finite = false;
};

// One minus the mean over samples of Pearson's correlation coefficient of two
// images, over channels and voxels (Pearson, 1895; MIR's PCC). In [0, 2]; a
// sample in which an image is constant has a correlation of 0, and no gradient.
//
//   fixed, moving  [N, C, D, H, W] or [N, C, H, W]  floating, of any types
//   returns        scalar, float32 (float64 where an image is float64)
//
// Computes in float64 under any autocast. Differentiable in both. Thread-safe.
// Throws as LocalNcc does.
class Pcc {
 public:
  explicit Pcc(const PccOptions& options = {}) : options_(options) {}

  at::Tensor operator()(const at::Tensor& fixed,
                        const at::Tensor& moving) const;

 private:
  PccOptions options_;
};

}  // namespace mir::losses

#endif  // MIR_LOSSES_PCC_H_
