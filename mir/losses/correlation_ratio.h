#ifndef MIR_LOSSES_CORRELATION_RATIO_H_
#define MIR_LOSSES_CORRELATION_RATIO_H_

#include <ATen/core/ATen_fwd.h>

#include <cstdint>

namespace mir::losses {

struct CorrelationRatioOptions {
  int64_t bins = 32;  // From 2 to 256.
  double sigma = 1;   // Of the Gaussian Parzen windows, in bins; 0.5 to 16.
  // Over [0, 1] with windows exp(-d^2 / sigma^2), not normalised, epsilons of
  // 1e-5, and a third of the ratio: as MIR has it. Otherwise over each image's
  // own range.
  bool as_mir = false;
  // Throw on a NaN or infinity on a GPU too, which waits for it.
  bool check_finite = false;
};

// The negative correlation ratio of two images (Roche et al., 1998): the share
// of one's variance that its mean at each intensity of the other explains, in
// both directions and averaged, and over samples and channels (MIR's
// CorrRatio). In [-1, 0]; 0 where an image is constant.
//
//   fixed, moving  [N, C, D, H, W] or [N, C, H, W]  floating, of any types
//   returns        scalar, float32 (float64 where an image is float64)
//
// Sums in float64 under any autocast. Differentiable in both; on the CPU once,
// with the gradients computed in the forward pass. Ranges are held fixed in the
// gradient. The same bits for any number of threads. Thread-safe. Throws as
// MutualInformation does.
class CorrelationRatio {
 public:
  // Throws c10::ValueError for an option outside its range.
  explicit CorrelationRatio(const CorrelationRatioOptions& options = {});

  at::Tensor operator()(const at::Tensor& fixed,
                        const at::Tensor& moving) const;

 private:
  CorrelationRatioOptions options_;
};

struct LocalCorrelationRatioOptions {
  CorrelationRatioOptions ratio;
  int64_t window = 9;  // Voxels along each side of a patch.
};

// The same within patches that tile the volume, once from its corner and once
// with the images rolled by half a patch; the mean of both (MIR's
// LocalCorrRatio). The zeros that fill up patches count as voxels with as_mir
// alone. Computes in float32 (float64).
class LocalCorrelationRatio {
 public:
  explicit LocalCorrelationRatio(
      const LocalCorrelationRatioOptions& options = {});

  at::Tensor operator()(const at::Tensor& fixed,
                        const at::Tensor& moving) const;

 private:
  LocalCorrelationRatioOptions options_;
};

}  // namespace mir::losses

#endif  // MIR_LOSSES_CORRELATION_RATIO_H_
