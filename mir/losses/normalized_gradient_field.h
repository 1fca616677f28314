#ifndef MIR_LOSSES_NORMALIZED_GRADIENT_FIELD_H_
#define MIR_LOSSES_NORMALIZED_GRADIENT_FIELD_H_

#include <ATen/core/ATen_fwd.h>

#include <cstdint>

namespace mir::losses {

struct NormalizedGradientFieldOptions {
  // The gradient below which an edge is noise: in standard deviations of the
  // image per voxel, or with as_mir in the images' units per voxel.
  double edge = 0.1;
  int64_t smooth_window = 3;  // Of a mean that is taken first; odd, 1: none.
  // Images as they are, zeros beyond the border, and `epsilon` added to both
  // parts of the ratio: as MIR has it.
  bool as_mir = false;
  double epsilon = 1e-6;
  // Throw on a NaN or infinity on a GPU too, which waits for it.
  bool check_finite = false;
};

// One minus the mean over voxels of the squared cosine of the angle between two
// images' gradients, with weak ones damped (Haber and Modersitzki, 2006; MIR's
// NormalizedGradientFieldLoss):
//
//   (a . b)^2 / ((|a|^2 + e^2) (|b|^2 + e^2)),  e = options.edge
//
// by central differences. In [0, 1]; near 0 where all edges are strong and
// aligned; 1 where an image is constant. Does not change when an image is
// scaled, shifted or negated (as_mir: negated).
//
//   fixed, moving  [N, C, D, H, W] or [N, C, H, W]  floating, of any types;
//                  each channel is compared with its own
//   returns        scalar, float32 (float64 where an image is float64)
//
// Computes in float32 (float64) with float64 sums under any autocast.
// Differentiable in both; on the CPU once, with the gradients computed in the
// forward pass. The same bits for any number of threads. Thread-safe. Throws as
// LocalNcc does.
class NormalizedGradientField {
 public:
  // Throws c10::ValueError for an option outside its range.
  explicit NormalizedGradientField(
      const NormalizedGradientFieldOptions& options = {});

  at::Tensor operator()(const at::Tensor& fixed,
                        const at::Tensor& moving) const;

 private:
  NormalizedGradientFieldOptions options_;
};

// The same by LibTorch's operators: what runs on GPUs. On any device;
// differentiable any number of times.
at::Tensor NormalizedGradientFieldByOperators(
    const at::Tensor& fixed, const at::Tensor& moving,
    const NormalizedGradientFieldOptions& options);

}  // namespace mir::losses

#endif  // MIR_LOSSES_NORMALIZED_GRADIENT_FIELD_H_
