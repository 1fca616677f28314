#ifndef MIR_LOSSES_PATCH_LOSS_H_
#define MIR_LOSSES_PATCH_LOSS_H_

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <functional>

namespace mir::losses {

// The loss of each of P patches, [P]: of their voxels in two images, [P, n]
// each, and of which of these lie inside the volume, [P, n], 1 or 0.
using PatchFunction = std::function<at::Tensor(
    const at::Tensor& x, const at::Tensor& y, const at::Tensor& inside)>;

// The mean of a loss over the patches that tile two images, each channel by
// itself. The volume is padded with zeros to a multiple of the patch, the most
// of it behind.
//
//   x, y   [N, C, D, H, W] or [N, C, H, W], one shape and dtype, checked
//   patch  voxels along each side of a patch
//
// On the CPU a few patches at a time, with their gradients in the same pass, so
// that memory does not grow with the volume; differentiable once there.
at::Tensor PatchLoss(const char* loss, const at::Tensor& x, const at::Tensor& y,
                     int64_t patch, const PatchFunction& function);

}  // namespace mir::losses

#endif  // MIR_LOSSES_PATCH_LOSS_H_
