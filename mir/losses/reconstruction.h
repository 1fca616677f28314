#ifndef MIR_LOSSES_RECONSTRUCTION_H_
#define MIR_LOSSES_RECONSTRUCTION_H_

#include <ATen/core/ATen_fwd.h>

namespace mir::losses {

struct ReconstructionOptions {
  // Throw on a NaN or infinity on a GPU too, which waits for it.
  bool check_finite = false;
};

// The mean absolute difference of two images.
//
//   fixed, moving  [N, C, D, H, W] or [N, C, H, W]  floating, of any types
//   weight         [N or 1, C or 1, D, H, W] (or 2-D), floating or bool, >= 0:
//                  the mean is weighted; 0 where all weights are
//   returns        scalar, float32 (float64 where an image is float64)
//
// Computes in float32 (float64) under any autocast. Differentiable in both.
// Thread-safe. Throws as Mse does.
class L1 {
 public:
  explicit L1(const ReconstructionOptions& options = {}) : options_(options) {}

  at::Tensor operator()(const at::Tensor& fixed,
                        const at::Tensor& moving) const;
  at::Tensor operator()(const at::Tensor& fixed, const at::Tensor& moving,
                        const at::Tensor& weight) const;

 private:
  ReconstructionOptions options_;
};

// The mean of sqrt(d^2 + e^2) - e for differences d: as the square below e, as
// the absolute value above (Charbonnier et al., 1994). In the images' units.
// Otherwise as L1.
class Charbonnier {
 public:
  // Throws c10::ValueError for an epsilon that is not positive.
  explicit Charbonnier(double epsilon = 1e-3,
                       const ReconstructionOptions& options = {});

  at::Tensor operator()(const at::Tensor& fixed,
                        const at::Tensor& moving) const;
  at::Tensor operator()(const at::Tensor& fixed, const at::Tensor& moving,
                        const at::Tensor& weight) const;

 private:
  double epsilon_;
  ReconstructionOptions options_;
};

struct CompositeReconstructionOptions {
  double charbonnier_weight = 100;
  double gradient_weight = 10;
  double frequency_weight = 1;
  double epsilon = 1e-3;  // Of the Charbonnier term.
  double exponent = 2;    // Of the spectrum's magnitude; at least 1.
  bool check_finite = false;
};

// For image synthesis without an adversary (MIR's CompRecon): a Charbonnier
// term, the mean difference of the absolute gradients along each axis (Mathieu
// et al., 2016), and the mean of |F(a) - F(b)|^exponent over the unscaled
// spectrum (after Jiang et al., "Focal frequency loss", 2021; MIR's alpha and
// beta add up to the exponent). At least 0. Otherwise as L1.
class CompositeReconstruction {
 public:
  // Throws c10::ValueError for a negative weight, or another value outside its
  // range.
  explicit CompositeReconstruction(
      const CompositeReconstructionOptions& options = {});

  at::Tensor operator()(const at::Tensor& prediction,
                        const at::Tensor& target) const;

 private:
  CompositeReconstructionOptions options_;
};

}  // namespace mir::losses

#endif  // MIR_LOSSES_RECONSTRUCTION_H_
