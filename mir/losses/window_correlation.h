#ifndef MIR_LOSSES_WINDOW_CORRELATION_H_
#define MIR_LOSSES_WINDOW_CORRELATION_H_

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <vector>

#include "mir/losses/kernels/window_correlation.h"

namespace mir::losses {

struct WindowCorrelationOptions {
  const char* loss = "";        // Begins the messages of errors.
  std::vector<int64_t> window;  // Per spatial axis; odd.
  // The window's weights, as WindowSum takes them, each axis adding up to 1.
  // Empty: a box.
  std::vector<std::vector<double>> taps;
  kernels::CorrelationFormula formula;
  // Where not 0: each image's mean is taken off first, formula.floor_x and _y
  // are this share of its variance, and a pair of which one image is constant
  // (to the last digits of float32) counts as 0. Needs clip_window, since a
  // window that reads zeros outside sees the mean.
  double relative_floor = 0;
  double factor = 1;  // Of the mean.
  // Throw on a NaN or infinity on a GPU too, which waits for it. On the CPU
  // that is always so.
  bool check_finite = false;
};

// The mean over all windows, channels and the batch of the correlation of two
// images as options.formula defines it, times options.factor.
//
//   x, y     [N, C, D, H, W] or [N, C, H, W], both float32 or both float64,
//            checked by CheckImagePair
//   returns  a scalar of that dtype
//
// Computes in float64. Differentiable in both, once on the CPU: there the
// gradients are computed with the value, in one pass.
//
// Throws c10::ValueError for a window that does not fit the images' axes, and
// for an image with a NaN or infinity: errors name them fixed (x) and moving.
at::Tensor MeanWindowCorrelation(const at::Tensor& x, const at::Tensor& y,
                                 const WindowCorrelationOptions& options);

// The same where each window counts a weight, of which the mean is taken; 0
// where all are 0. `weight` passes CheckWeight.
at::Tensor MeanWindowCorrelation(const at::Tensor& x, const at::Tensor& y,
                                 const at::Tensor& weight,
                                 const WindowCorrelationOptions& options);

// The same by LibTorch's operators: what runs on GPUs. On any device. An
// undefined weight is 1.
at::Tensor MeanWindowCorrelationByOperators(
    const at::Tensor& x, const at::Tensor& y, const at::Tensor& weight,
    const WindowCorrelationOptions& options);

// That of each window: [N, C, ...], float64.
at::Tensor WindowCorrelationByOperators(
    const at::Tensor& x, const at::Tensor& y,
    const WindowCorrelationOptions& options);

}  // namespace mir::losses

#endif  // MIR_LOSSES_WINDOW_CORRELATION_H_
