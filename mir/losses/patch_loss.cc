#include "mir/losses/patch_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "mir/losses/fused_loss.h"

namespace mir::losses {
namespace {

// Voxels of the patches that are looked at together.
constexpr int64_t kVoxelsAtOnce = 1 << 15;

// [P, n]: the batch's and channels' patches after each other.
at::Tensor ToPatches(const at::Tensor& image, int64_t patch) {
  const int64_t axes = image.dim() - 2;
  std::vector<int64_t> padding;  // Last axis first.
  std::vector<int64_t> split = {image.size(0) * image.size(1)};
  for (int64_t axis = axes - 1; axis >= 0; --axis) {
    const int64_t missing = (patch - image.size(2 + axis) % patch) % patch;
    padding.push_back(missing / 2);
    padding.push_back(missing - missing / 2);
  }
  const at::Tensor padded = at::constant_pad_nd(image, padding, 0);
  std::vector<int64_t> order = {0};
  for (int64_t axis = 0; axis < axes; ++axis) {
    split.push_back(padded.size(2 + axis) / patch);
    split.push_back(patch);
    order.push_back(1 + 2 * axis);
  }
  for (int64_t axis = 0; axis < axes; ++axis) order.push_back(2 + 2 * axis);
  return padded.reshape(split)
      .permute(order)
      .flatten(0, axes)
      .flatten(1)
      .contiguous();
}

}  // namespace

at::Tensor PatchLoss(const char* loss, const at::Tensor& x, const at::Tensor& y,
                     int64_t patch, const PatchFunction& function) {
  const at::Tensor x_patches = ToPatches(x, patch);
  const at::Tensor y_patches = ToPatches(y, patch);
  std::vector<int64_t> one_volume = x.sizes().vec();
  one_volume[0] = one_volume[1] = 1;
  const at::Tensor inside = ToPatches(at::ones(one_volume, x.options()), patch)
                                .repeat({x.size(0) * x.size(1), 1});
  if (!x.is_cpu()) return function(x_patches, y_patches, inside).mean();
  return FusedLoss(
      loss, x_patches, y_patches,
      [=](const at::Tensor& x, const at::Tensor& y, const at::Tensor& grad_x,
          const at::Tensor& grad_y) {
        const int64_t patches = x.size(0);
        const int64_t step = std::max<int64_t>(1, kVoxelsAtOnce / x.size(1));
        const at::AutoGradMode mode(grad_x.defined() || grad_y.defined());
        double sum = 0;
        for (int64_t first = 0; first < patches; first += step) {
          const int64_t count = std::min(step, patches - first);
          const auto leaf = [&](const at::Tensor& image, bool needed) {
            return image.detach()
                .narrow(0, first, count)
                .detach()
                .requires_grad_(needed);
          };
          const at::Tensor own_x = leaf(x, grad_x.defined());
          const at::Tensor own_y = leaf(y, grad_y.defined());
          const at::Tensor value =
              function(own_x, own_y, inside.narrow(0, first, count))
                  .sum(at::kDouble);
          sum += value.item<double>();
          std::vector<at::Tensor> leaves, outs;
          for (const auto& [own, out] :
               {std::make_pair(own_x, grad_x), std::make_pair(own_y, grad_y)}) {
            if (!out.defined()) continue;
            leaves.push_back(own);
            outs.push_back(out.narrow(0, first, count));
          }
          if (leaves.empty()) continue;
          const std::vector<at::Tensor> found =
              torch::autograd::grad({value / patches}, leaves);
          const at::NoGradGuard no_grad;
          for (size_t i = 0; i < found.size(); ++i) outs[i].copy_(found[i]);
        }
        return sum / patches;
      });
}

}  // namespace mir::losses
