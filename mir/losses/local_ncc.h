#ifndef MIR_LOSSES_LOCAL_NCC_H_
#define MIR_LOSSES_LOCAL_NCC_H_

#include <ATen/core/ATen_fwd.h>

#include <cstdint>

namespace mir::losses {

struct LocalNccOptions {
  // Voxels along each side of the window; odd.
  int64_t window = 9;
  // Of Gaussian weights of the window's voxels, in voxels; 0: all count 1.
  double sigma = 0;
  // The mean over so many scales: images as they are, halved, ... Those in
  // which nothing is left to halve are left out.
  int64_t scales = 1;
  // Share of an image's variance that is added to that of each window, so that
  // windows with nothing but noise count little: where the standard deviations
  // in a window are 0.3 % of the images', its correlation counts a quarter.
  // From 1e-8 to 1.
  double epsilon = 1e-5;
  // Throw on a NaN or infinity on a GPU too, which waits for it. On the CPU
  // the check is free and always made.
  bool check_finite = false;
};

// The negative mean of the squared local normalized cross-correlation (the
// similarity of ANTs and VoxelMorph):
//
//   -mean over windows of  cov(f, m)^2 / ((var(f) + e var_f) (var(m) + e
//   var_m))
//
// where cov and var are over the window's voxels inside the volume, var_f and
// var_m over the whole image, and e is options.epsilon. It lies in [-1, 0],
// does not change when an image is scaled or shifted, is near -1 for an image
// and itself, and windows in which one image is constant contribute 0.
//
//   fixed, moving  [N, C, D, H, W] or [N, C, H, W]  floating, of any types;
//                  each channel of each sample is compared with its own
//   returns        scalar, float32 (float64 where an image is float64)
//
// Computes in float64 sums under any autocast. Differentiable in both images;
// on the CPU once, with the gradients computed in the forward pass. The CPU's
// time hardly depends on the window. The same bits for any number of threads.
// Thread-safe.
//
// Throws c10::ValueError if a shape is not as above or, on the CPU, a voxel is
// not finite; c10::TypeError for an integer image.
class LocalNcc {
 public:
  // Throws c10::ValueError for an even or non-positive window, or another
  // option outside its range.
  explicit LocalNcc(const LocalNccOptions& options = {});

  at::Tensor operator()(const at::Tensor& fixed,
                        const at::Tensor& moving) const;

  // Each window counts the weight of its middle; 0 where all weights are.
  //
  //   weight  [N or 1, C or 1, D, H, W] (or 2-D), floating or bool; >= 0
  at::Tensor operator()(const at::Tensor& fixed, const at::Tensor& moving,
                        const at::Tensor& weight) const;

  // As if there were no voxels where the mask is 0 (or false): windows end
  // there as at the volume's border, and voxels may hold anything, NaN too.
  // A mask has the shape of a weight. By LibTorch's operators.
  at::Tensor Masked(const at::Tensor& fixed, const at::Tensor& moving,
                    const at::Tensor& mask) const;

 private:
  at::Tensor Loss(const at::Tensor& fixed, const at::Tensor& moving,
                  const at::Tensor& weight, bool masked) const;

  LocalNccOptions options_;
};

}  // namespace mir::losses

#endif  // MIR_LOSSES_LOCAL_NCC_H_
