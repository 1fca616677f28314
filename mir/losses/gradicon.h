#ifndef MIR_LOSSES_GRADICON_H_
#define MIR_LOSSES_GRADICON_H_

#include <ATen/core/ATen_fwd.h>

#include "mir/geometry/warp_options.h"
#include "mir/losses/gradient_penalty.h"

namespace mir::losses {

struct GradIconOptions {
  GradientNorm norm = GradientNorm::kL2;  // kL1 or kL2.
  // Also penalise the composition the other way round, and average.
  bool both_directions = false;
  geometry::WarpConvention convention = geometry::WarpConvention::kExact;
  // Throw on a NaN or infinity on a GPU too, which waits for it.
  bool check_finite = false;
};

// Gradient inverse consistency (Tian et al., "GradICON", 2023; MIR's
// GradICON3d): the GradientPenalty of the composed displacement
// backward(x) + forward(x + backward(x)), which vanishes where the maps are
// inverse to each other up to a translation. At least 0.
//
//   forward, backward  [N, 3, D, H, W] or [N, 2, H, W]  floating; in voxels
//   returns            scalar, float32 (float64 for float64)
//
// Differentiable in both. Thread-safe. Throws as GradientPenalty does.
class GradIcon {
 public:
  // Throws c10::ValueError for the isotropic norm.
  explicit GradIcon(const GradIconOptions& options = {});

  at::Tensor operator()(const at::Tensor& forward,
                        const at::Tensor& backward) const;

 private:
  GradIconOptions options_;
};

// As the paper has it (MIR's GradICONExact3d): the mean over voxels of the sum
// of the absolute or squared entries of the Jacobian of the composed map less
// the identity, by forward differences of a thousandth of the volume's extent
// along each axis, of the linearly interpolated displacement. Where `share` is
// less than 1, over so many of the voxels, chosen at random in each call with
// LibTorch's default CPU generator.
//
// kMirCompatible reads the displacement as MIR does: magnified about the
// centre, as its warp, and with steps of the extents along (d, h, w) for those
// along (w, h, d).
class GradIconExact {
 public:
  // Throws c10::ValueError for the isotropic norm, or a share outside (0, 1].
  explicit GradIconExact(const GradIconOptions& options = {}, double share = 1);

  at::Tensor operator()(const at::Tensor& forward,
                        const at::Tensor& backward) const;

 private:
  at::Tensor OneWay(const at::Tensor& forward,
                    const at::Tensor& backward) const;

  GradIconOptions options_;
  double share_;
};

}  // namespace mir::losses

#endif  // MIR_LOSSES_GRADICON_H_
