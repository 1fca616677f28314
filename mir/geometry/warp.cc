#include "mir/geometry/warp.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "mir/geometry/kernels/warp_cpu.h"
#include "mir/geometry/warp_grid_sample.h"
#include "mir/precision/fp32_region.h"

namespace mir::geometry {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool IsSupportedFloat(const at::Tensor& tensor) {
  const at::ScalarType dtype = tensor.scalar_type();
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf ||
         dtype == at::kBFloat16;
}

// Checks all but the image's dtype. `what` names the image.
void CheckArguments(const char* function, const char* what,
                    const at::Tensor& image, const at::Tensor& displacement) {
  TORCH_CHECK_VALUE(image.defined(), function, ": ", what, " is undefined");
  TORCH_CHECK_VALUE(displacement.defined(), function,
                    ": displacement is undefined");
  TORCH_CHECK_VALUE(image.dim() == 4 || image.dim() == 5, function, ": wanted ",
                    what, " [N, C, D, H, W] or [N, C, H, W], ", "came ",
                    image.sizes());
  TORCH_CHECK_VALUE(
      image.size(-1) > 0 && image.size(-2) > 0 && image.size(2) > 0, function,
      ": wanted ", what, " with voxels, came ", image.sizes());
  TORCH_CHECK_VALUE(c10::multiply_integers(image.sizes().slice(2)) <=
                        std::numeric_limits<int32_t>::max(),
                    function, ": wanted ", what,
                    " with fewer than 2^31 voxels per channel, came ",
                    image.sizes(), "; warp it in pieces");
  std::vector<int64_t> wanted = image.sizes().vec();
  wanted[1] = image.dim() - 2;
  TORCH_CHECK_VALUE(displacement.sizes() == wanted, function,
                    ": wanted displacement ", at::IntArrayRef(wanted), " for ",
                    what, " ", image.sizes(), ", came ", displacement.sizes());
  TORCH_CHECK_VALUE(IsSupportedFloat(displacement), function,
                    ": wanted a float16, bfloat16, float32 or float64 "
                    "displacement, came ",
                    displacement.scalar_type());
  TORCH_CHECK_VALUE(image.device() == displacement.device(), function,
                    ": wanted ", what, " and displacement on one device, came ",
                    image.device(), " and ", displacement.device());
}

void CheckLabelArguments(const char* function, const at::Tensor& labels,
                         const at::Tensor& displacement) {
  CheckArguments(function, "labels", labels, displacement);
  TORCH_CHECK_VALUE(
      at::isIntegralType(labels.scalar_type(), /*includeBool=*/true), function,
      ": wanted labels of an integer dtype, came ", labels.scalar_type(),
      "; for intensities call Warp");
}

class CpuWarp : public torch::autograd::Function<CpuWarp> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& image,
                            const at::Tensor& displacement,
                            const WarpOptions& options) {
    context->save_for_backward({image, displacement});
    context->saved_data["convention"] =
        static_cast<int64_t>(options.convention);
    context->saved_data["interpolation"] =
        static_cast<int64_t>(options.interpolation);
    context->saved_data["outside"] = static_cast<int64_t>(options.outside);
    context->saved_data["constant"] = options.constant;
    return kernels::WarpForward(image, displacement, options);
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !at::GradMode::is_enabled(),
        "Warp: has no second derivative; wanted backward() without "
        "create_graph");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& image = saved[0];
    const at::Tensor& displacement = saved[1];
    const auto get = [&](const char* name) {
      return context->saved_data[name].toInt();
    };
    const WarpOptions options = {
        static_cast<WarpConvention>(get("convention")),
        static_cast<Interpolation>(get("interpolation")),
        static_cast<Outside>(get("outside")),
        context->saved_data["constant"].toDouble()};
    const at::Tensor& gradient = gradients[0];
    variable_list results(3);  // The options have none.
    if (context->needs_input_grad(0)) {
      results[0] =
          kernels::WarpBackwardToImage(gradient, displacement, options);
    }
    if (context->needs_input_grad(1)) {
      results[1] = kernels::WarpBackwardToDisplacement(gradient, image,
                                                       displacement, options);
    }
    return results;
  }
};

}  // namespace

at::Tensor Warp(const at::Tensor& image, const at::Tensor& displacement,
                const WarpOptions& options) {
  CheckArguments("Warp", "image", image, displacement);
  TORCH_CHECK_VALUE(IsSupportedFloat(image),
                    "Warp: wanted a float16, bfloat16, float32 or float64 "
                    "image, came ",
                    image.scalar_type(), "; for labels call WarpLabels");
  const at::Tensor source = precision::ToComputeType(image);
  const at::Tensor shift = displacement.to(source.scalar_type());
  const at::Tensor warped =
      image.is_cpu()
          ? CpuWarp::apply(source.contiguous(), shift.contiguous(), options)
          : GridSampleWarp(source, shift, options);
  return warped.to(image.scalar_type());
}

at::Tensor WarpLabels(const at::Tensor& labels, const at::Tensor& displacement,
                      WarpConvention convention) {
  CheckLabelArguments("WarpLabels", labels, displacement);
  const at::NoGradGuard no_grad;
  const at::Tensor shift = precision::ToComputeType(displacement);
  return labels.is_cpu()
             ? kernels::WarpLabelsForward(labels.contiguous(),
                                          shift.contiguous(), convention)
             : GatherWarpLabels(labels, shift, convention);
}

at::Tensor WarpLabelsLinear(const at::Tensor& labels,
                            const at::Tensor& displacement,
                            WarpConvention convention) {
  CheckLabelArguments("WarpLabelsLinear", labels, displacement);
  const at::NoGradGuard no_grad;
  const at::Tensor shift = precision::ToComputeType(displacement);
  return labels.is_cpu()
             ? kernels::WarpLabelsLinearForward(labels.contiguous(),
                                                shift.contiguous(), convention)
             : GridSampleWarpLabelsLinear(labels, shift, convention);
}

}  // namespace mir::geometry
