#ifndef MIR_LOSSES_DISPLACEMENT_ENERGY_H_
#define MIR_LOSSES_DISPLACEMENT_ENERGY_H_

#include <ATen/core/ATen_fwd.h>

#include <vector>

namespace mir::losses {

enum class EnergyKind {
  // Sum of squared second derivatives, the mixed ones twice (Rueckert et al.,
  // 1999).
  kBending,
  // mu |e|^2 + lambda / 2 (div u)^2 with the strain e = (grad u + grad u^T) / 2
  // (Broit, 1981).
  kLinearElastic,
  // The gradient's absolute values, or its squares, divided by 3 (by 2 in 2-D)
  // as in MIR.
  kGradientL1,
  kGradientL2,
};

struct DisplacementEnergyOptions {
  EnergyKind kind = EnergyKind::kBending;
  double mu = 1;  // Lame's constants, of kLinearElastic alone.
  double lambda = 1;
  // The size of a voxel along each axis: derivatives are then those of the
  // displacement in these units by the position in these units. Empty: 1.
  std::vector<double> spacing;
  // Throw on a NaN or infinity on a GPU too, which waits for it.
  bool check_finite = false;
};

// The mean energy density of a displacement by central differences, over the
// voxels that have all neighbours which these need (MIR's
// DisplacementRegularizer; for kBending two on each side). The mean is over
// channels, too, but for kLinearElastic. At least 0.
//
//   displacement  [N, 3, D, H, W] or [N, 2, H, W]  floating; in voxels
//   weight        [N or 1, 1, D, H, W] (or 2-D), floating or bool, >= 0: each
//                 voxel's density counts its weight (not normalised)
//   returns       scalar, float32 (float64 for float64)
//
// Along an axis of fewer voxels than a derivative needs that derivative is 0.
// Computes in float32 (float64) under any autocast. Differentiable in both any
// number of times. Thread-safe. Throws as GradientPenalty does.
class DisplacementEnergy {
 public:
  // Throws c10::ValueError for a spacing that is not positive and finite, and
  // for negative constants.
  explicit DisplacementEnergy(const DisplacementEnergyOptions& options = {});

  at::Tensor operator()(const at::Tensor& displacement) const;
  at::Tensor operator()(const at::Tensor& displacement,
                        const at::Tensor& weight) const;

 private:
  at::Tensor Compute(const at::Tensor& displacement,
                     const at::Tensor& weight) const;

  DisplacementEnergyOptions options_;
};

}  // namespace mir::losses

#endif  // MIR_LOSSES_DISPLACEMENT_ENERGY_H_
