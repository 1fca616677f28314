#ifndef MIR_LOSSES_GRADIENT_PENALTY_H_
#define MIR_LOSSES_GRADIENT_PENALTY_H_

#include <ATen/core/ATen_fwd.h>

#include <vector>

namespace mir::losses {

enum class GradientNorm {
  kL1,  // The absolute differences: total variation.
  kL2,  // Their squares: diffusion.
  // sqrt(the sum of their squares over the axes + 1e-6), divided by the number
  // of axes, where each axis has a neighbour before: isotropic total variation
  // (Rudin, Osher and Fatemi, 1992; MIR's Grad3DiTV).
  kIsotropic,
};

struct GradientPenaltyOptions {
  GradientNorm norm = GradientNorm::kL2;
  // The size of a voxel along each spatial axis. Where given, the derivatives
  // of the displacement in these units by the position in these units are
  // penalised: the difference of channel k along axis j counts
  // spacing[k] / spacing[j]. Empty: all sizes are alike.
  std::vector<double> spacing;
  // Throw on a NaN or infinity on a GPU too, which waits for it. On the CPU
  // the check is free and always made.
  bool check_finite = false;
};

// Penalises what is not smooth in a displacement or velocity: the mean, over
// the axes, of the mean absolute or squared difference of neighbours along it
// (MIR's Grad3d and Grad2D, without their loss_mult).
//
//   displacement  [N, 3, D, H, W] or [N, 2, H, W]  floating; in voxels
//   returns       scalar, float32 (float64 for float64)
//
// An axis of one voxel has no differences and counts 0. Computes in float32
// (float64) with float64 sums on the CPU, under any autocast. Differentiable;
// on the CPU once, with the gradient computed in the forward pass. The same
// bits for any number of threads. Thread-safe.
//
// Throws c10::ValueError if the shape is not as above or the spacing is not
// one per axis or, on the CPU, a value is not finite; c10::TypeError for
// integers.
class GradientPenalty {
 public:
  // Throws c10::ValueError for a spacing that is not positive and finite.
  explicit GradientPenalty(const GradientPenaltyOptions& options = {});

  at::Tensor operator()(const at::Tensor& displacement) const;

  // Each difference counts the weight of its further voxel (MIR's LocalGrad3d):
  // where to smooth more. The weights are not normalised, and the penalty is
  // differentiable in them; otherwise as above.
  //
  //   weight  [N or 1, 1 or 3 (2), D, H, W] (or 2-D), floating or bool; >= 0
  at::Tensor operator()(const at::Tensor& displacement,
                        const at::Tensor& weight) const;

 private:
  GradientPenaltyOptions options_;
};

// The same by LibTorch's operators: what runs on GPUs. On any device;
// differentiable any number of times. An undefined weight is 1.
at::Tensor GradientPenaltyByOperators(const at::Tensor& displacement,
                                      const GradientPenaltyOptions& options);
at::Tensor GradientPenaltyByOperators(const at::Tensor& displacement,
                                      const GradientPenaltyOptions& options,
                                      const at::Tensor& weight);

}  // namespace mir::losses

#endif  // MIR_LOSSES_GRADIENT_PENALTY_H_
