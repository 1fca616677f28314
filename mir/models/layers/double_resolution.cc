#include "mir/models/layers/double_resolution.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_trilinear3d.h>
#include <ATen/ops/upsample_trilinear3d_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <vector>

#include "mir/models/layers/kernels/double_resolution_cpu.h"
#include "mir/precision/op_fallback.h"

namespace mir::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Values from which on the kernel is worth it. Fewer take little time, and have
// the same bits as in Python by LibTorch.
constexpr int64_t kMostByOperator = 1 << 21;

std::vector<int64_t> DoubledSizes(const at::Tensor& x) {
  std::vector<int64_t> sizes = x.sizes().slice(2).vec();
  for (int64_t& size : sizes) size *= 2;
  return sizes;
}

// Of the smaller volumes [N, C, D, H, W].
std::array<int64_t, 3> SizeOf(at::IntArrayRef sizes) {
  return {sizes[2], sizes[3], sizes[4]};
}

class CpuDoubling : public torch::autograd::Function<CpuDoubling> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            bool align_corners) {
    context->saved_data["sizes"] = x.sizes().vec();
    context->saved_data["align_corners"] = align_corners;
    const at::Tensor source = x.contiguous();
    std::vector<int64_t> sizes = DoubledSizes(x);
    sizes.insert(sizes.begin(), {x.size(0), x.size(1)});
    const at::Tensor out = at::empty(sizes, x.options());
    const auto run = [&](auto zero) {
      using T = decltype(zero);
      kernels::DoubleForward<T>(source.const_data_ptr<T>(),
                                x.size(0) * x.size(1), SizeOf(x.sizes()),
                                align_corners, out.mutable_data_ptr<T>());
    };
    x.scalar_type() == at::kDouble ? run(0.0) : run(0.0f);
    return out;
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const std::vector<int64_t> sizes =
        context->saved_data["sizes"].toIntVector();
    const bool align_corners = context->saved_data["align_corners"].toBool();
    if (at::GradMode::is_enabled()) {  // By an operator that has a gradient.
      return {at::upsample_trilinear3d_backward(
                  gradients[0], gradients[0].sizes().slice(2), sizes,
                  align_corners, /*scales_d=*/2.0, /*scales_h=*/2.0,
                  /*scales_w=*/2.0),
              {}};
    }
    const at::Tensor gradient = gradients[0].contiguous();
    const at::Tensor to_x = at::empty(sizes, gradient.options());
    const auto run = [&](auto zero) {
      using T = decltype(zero);
      kernels::DoubleBackward<T>(gradient.const_data_ptr<T>(),
                                 sizes[0] * sizes[1], SizeOf(sizes),
                                 align_corners, to_x.mutable_data_ptr<T>());
    };
    gradient.scalar_type() == at::kDouble ? run(0.0) : run(0.0f);
    return {to_x, {}};
  }
};

}  // namespace

at::Tensor DoubleResolution(const at::Tensor& x, bool align_corners) {
  if (x.is_cpu() && x.layout() == at::kStrided && x.dim() == 5 &&
      8 * x.numel() > kMostByOperator &&
      (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble)) {
    return DoubleResolutionOnCpu(x, align_corners);
  }
  const std::vector<int64_t> sizes = DoubledSizes(x);
  const auto interpolate = [&](const at::Tensor& images) {
    return images.dim() == 5
               ? at::upsample_trilinear3d(images, sizes, align_corners,
                                          /*scales_d=*/2.0, /*scales_h=*/2.0,
                                          /*scales_w=*/2.0)
               : at::upsample_bilinear2d(images, sizes, align_corners,
                                         /*scales_h=*/2.0, /*scales_w=*/2.0);
  };
  return precision::WithFallback(precision::Op::kUpsampleTrilinear3d,
                                 interpolate, x)
      .to(x.scalar_type());
}

at::Tensor DoubleResolutionOnCpu(const at::Tensor& x, bool align_corners) {
  return CpuDoubling::apply(x, align_corners);
}

}  // namespace mir::models
