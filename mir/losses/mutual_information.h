#ifndef MIR_LOSSES_MUTUAL_INFORMATION_H_
#define MIR_LOSSES_MUTUAL_INFORMATION_H_

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <optional>
#include <utility>

namespace mir::losses {

// How an intensity is spread over the bins of a histogram.
enum class ParzenKind {
  kCubicSpline,  // Over four bins (Thevenaz and Unser, 2000).
  kGaussian,     // Over all, normalised to 1 (Viola and Wells, 1997).
};

struct MutualInformationOptions {
  int64_t bins = 32;  // From 4 to 256.
  ParzenKind kind = ParzenKind::kCubicSpline;
  double sigma = 1;  // Of the Gaussians, in bins; from 0.5 to 16.
  // Intensities of both images are clamped to [first, second]. Where there is
  // none, each image has its own range, from its least to its greatest value.
  std::optional<std::pair<double, double>> range;
  // Throw on a NaN or infinity on a GPU too, which waits for it.
  bool check_finite = false;
};

// The negative mutual information of two images, from their joint histogram
// with Parzen windows (Mattes et al., 2003), in nats:
//
//   -mean over samples of  sum p_ij log((p_ij + e) / (p_i p_j + e)), e = 1e-9
//
// In [-log(bins), 0], but for e; 0 where an image is constant.
//
//   fixed, moving  [N, C, D, H, W] or [N, C, H, W]  floating, of any types; the
//                  channels of a sample share a histogram
//   weight         [N or 1, C or 1, D, H, W] (or 2-D), floating or bool, >= 0:
//                  what each voxel counts in the histogram
//   returns        scalar, float32 (float64 where an image is float64)
//
// Sums in float64 under any autocast. Differentiable in both images; on the CPU
// once, with the gradients computed in the forward pass, at a cost that hardly
// depends on the window. The ranges of images are held fixed in the gradient.
// The same bits for any number of threads. Thread-safe.
//
// Throws c10::ValueError if a shape is not as above or, on the CPU, a voxel is
// not finite; c10::TypeError for an integer image.
class MutualInformation {
 public:
  // Throws c10::ValueError for an option outside its range.
  explicit MutualInformation(const MutualInformationOptions& options = {});

  at::Tensor operator()(const at::Tensor& fixed,
                        const at::Tensor& moving) const;
  at::Tensor operator()(const at::Tensor& fixed, const at::Tensor& moving,
                        const at::Tensor& weight) const;

 private:
  MutualInformationOptions options_;
};

// The negative normalized mutual information (Studholme et al., 1999),
// -(H(f) + H(m)) / H(f, m), in [-2, -1]: -1 for independent images and where
// one is constant. Otherwise as above.
class NormalizedMutualInformation {
 public:
  explicit NormalizedMutualInformation(
      const MutualInformationOptions& options = {});

  at::Tensor operator()(const at::Tensor& fixed,
                        const at::Tensor& moving) const;
  at::Tensor operator()(const at::Tensor& fixed, const at::Tensor& moving,
                        const at::Tensor& weight) const;

 private:
  MutualInformationOptions options_;
};

}  // namespace mir::losses

#endif  // MIR_LOSSES_MUTUAL_INFORMATION_H_
