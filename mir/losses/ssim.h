#ifndef MIR_LOSSES_SSIM_H_
#define MIR_LOSSES_SSIM_H_

#include <ATen/core/ATen_fwd.h>

#include <cstdint>

namespace mir::losses {

struct SsimOptions {
  int64_t window = 11;  // Voxels along each side of the window; odd.
  double sigma = 1.5;   // Of its Gaussian weights, in voxels.
  // The span of the intensities, for the formula's constants. 0: from the
  // least to the greatest value of both images, held fixed in the gradient.
  double intensity_range = 0;
  // Windows at the border weigh their voxels inside alone; otherwise those
  // outside count as zeros, as in MIR.
  bool clip_window = true;
  // Throw on a NaN or infinity on a GPU too, which waits for it. On the CPU
  // that is always so.
  bool check_finite = false;
};

// One minus the mean structural similarity of two images (Wang et al., "Image
// quality assessment", 2004; MIR's SSIM3D, and 1 - SSIM2D). In [0, 2]; 0 for an
// image and itself. Constant windows are compared by their means.
//
//   fixed, moving  [N, C, D, H, W] or [N, C, H, W]  floating, of any types;
//                  each channel is compared with its own
//   weight         [N or 1, C or 1, D, H, W] (or 2-D), floating or bool, >= 0:
//                  what each window counts in the mean; 1 where all are 0
//   returns        scalar, float32 (float64 where an image is float64)
//
// Computes in float64 under any autocast. Differentiable in both images; on the
// CPU once, with the gradients computed in the forward pass. The same bits for
// any number of threads. Thread-safe.
//
// Throws c10::ValueError if a shape is not as above or, on the CPU, a voxel is
// not finite; c10::TypeError for an integer image.
class Ssim {
 public:
  // Throws c10::ValueError for an even or non-positive window, a sigma that is
  // not positive, or a negative range.
  explicit Ssim(const SsimOptions& options = {});

  at::Tensor operator()(const at::Tensor& fixed,
                        const at::Tensor& moving) const;
  at::Tensor operator()(const at::Tensor& fixed, const at::Tensor& moving,
                        const at::Tensor& weight) const;

  // The similarity of each window, [N, C, ...], float64; by LibTorch's
  // operators.
  at::Tensor Map(const at::Tensor& fixed, const at::Tensor& moving) const;

 private:
  at::Tensor Loss(const at::Tensor& fixed, const at::Tensor& moving,
                  const at::Tensor& weight) const;

  SsimOptions options_;
};

}  // namespace mir::losses

#endif  // MIR_LOSSES_SSIM_H_
