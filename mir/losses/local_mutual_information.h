#ifndef MIR_LOSSES_LOCAL_MUTUAL_INFORMATION_H_
#define MIR_LOSSES_LOCAL_MUTUAL_INFORMATION_H_

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <optional>
#include <utility>

namespace mir::losses {

struct LocalMutualInformationOptions {
  int64_t bins = 32;  // From 2 to 256.
  double sigma = 1;   // Of the Gaussian Parzen windows, in bins.
  int64_t patch = 5;  // Voxels along each side of a patch.
  // As for MutualInformation.
  std::optional<std::pair<double, double>> range;
  // The zeros that pad the volume to whole patches count as voxels, and 1e-6 is
  // added within the logarithm: as MIR does.
  bool as_mir = false;
  // Throw on a NaN or infinity on a GPU too, which waits for it.
  bool check_finite = false;
};

// The negative mutual information within the patches that tile two images, in
// nats, with Gaussian Parzen windows: the mean over the patches (MIR's
// localMutualInformation). In [-log(bins), 0], but for rounding.
//
//   fixed, moving  [N, C, D, H, W] or [N, C, H, W]  floating, of any types
//   returns        scalar, float32 (float64 where an image is float64)
//
// Computes in float32 (float64) under any autocast. Differentiable in both; on
// the CPU once. Memory does not grow with the volume there. Thread-safe. Throws
// as MutualInformation does.
class LocalMutualInformation {
 public:
  // Throws c10::ValueError for an option outside its range.
  explicit LocalMutualInformation(
      const LocalMutualInformationOptions& options = {});

  at::Tensor operator()(const at::Tensor& fixed,
                        const at::Tensor& moving) const;

 private:
  LocalMutualInformationOptions options_;
};

}  // namespace mir::losses

#endif  // MIR_LOSSES_LOCAL_MUTUAL_INFORMATION_H_
