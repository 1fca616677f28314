#ifndef MIR_LOSSES_MSE_H_
#define MIR_LOSSES_MSE_H_

#include <ATen/core/ATen_fwd.h>

namespace mir::losses {

struct MseOptions {
  // Throw on a NaN or infinity on a GPU too, which waits for it. On the CPU
  // the check is free and always made.
  bool check_finite = false;
};

// The mean squared difference of two images.
//
//   fixed, moving  [N, C, D, H, W] or [N, C, H, W]  floating, of any types
//   returns        scalar, float32 (float64 where an image is float64)
//
// Computes in float32 (float64) under any autocast. Differentiable in both
// images any number of times. Thread-safe.
//
// Throws c10::ValueError if a shape is not as above or, on the CPU, a voxel is
// not finite; c10::TypeError for an integer image.
class Mse {
 public:
  explicit Mse(const MseOptions& options = {}) : options_(options) {}

  at::Tensor operator()(const at::Tensor& fixed,
                        const at::Tensor& moving) const;

  // The weighted mean; 0 where all weights are. Voxels of weight 0 may hold
  // anything, NaN too.
  //
  //   weight  [N or 1, C or 1, D, H, W] (or 2-D), floating or bool; >= 0
  at::Tensor operator()(const at::Tensor& fixed, const at::Tensor& moving,
                        const at::Tensor& weight) const;

 private:
  MseOptions options_;
};

}  // namespace mir::losses

#endif  // MIR_LOSSES_MSE_H_
