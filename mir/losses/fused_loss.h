#ifndef MIR_LOSSES_FUSED_LOSS_H_
#define MIR_LOSSES_FUSED_LOSS_H_

#include <ATen/core/ATen_fwd.h>

#include <functional>

namespace mir::losses {

struct FusedResult {
  FusedResult(double value) : value(value) {}  // Implicit: mostly it is all.

  double value;
  // Multiplies the kernel's derivatives by a number, in place, where more than
  // that is left to do to them.
  std::function<void(const at::Tensor& x, const at::Tensor& y, double scale,
                     const at::Tensor& grad_x, const at::Tensor& grad_y)>
      finish;
};

// Computes a loss of two images and, where grad_x or grad_y is defined, writes
// its derivatives to them. All are contiguous and of one dtype and shape;
// derivatives come uninitialised.
using FusedKernel = std::function<FusedResult(
    const at::Tensor& x, const at::Tensor& y, const at::Tensor& grad_x,
    const at::Tensor& grad_y)>;

// The kernel's value as a scalar of the images' dtype, differentiable once in
// both (or in one, for a loss of one tensor). Derivatives are computed with the
// value, and only where they are needed; a second backward pass through one
// graph computes them anew. `loss` begins the message of the error for a second
// derivative.
at::Tensor FusedLoss(const char* loss, const at::Tensor& x, const at::Tensor& y,
                     FusedKernel kernel);
at::Tensor FusedLoss(
    const char* loss, const at::Tensor& x,
    std::function<double(const at::Tensor& x, const at::Tensor& grad_x)>
        kernel);

}  // namespace mir::losses

#endif  // MIR_LOSSES_FUSED_LOSS_H_
