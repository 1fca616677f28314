#include "mir/losses/ssim.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/aminmax.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <tuple>

#include "mir/losses/arguments.h"
#include "mir/losses/box_sum.h"
#include "mir/losses/window_correlation.h"
#include "mir/precision/fp32_region.h"

namespace mir::losses {
namespace {

// Of both images; 1 where they are one constant.
double RangeOf(const at::Tensor& fixed, const at::Tensor& moving) {
  const auto [fixed_least, fixed_most] = at::aminmax(fixed.detach());
  const auto [moving_least, moving_most] = at::aminmax(moving.detach());
  const double range =
      std::max(fixed_most.item<double>(), moving_most.item<double>()) -
      std::min(fixed_least.item<double>(), moving_least.item<double>());
  return range > 0 ? range : 1;
}

WindowCorrelationOptions CorrelationOptions(const SsimOptions& options,
                                            const at::Tensor& fixed,
                                            const at::Tensor& moving) {
  const double range = options.intensity_range > 0 ? options.intensity_range
                                                   : RangeOf(fixed, moving);
  WindowCorrelationOptions result;
  result.loss = "Ssim";
  result.window.assign(fixed.dim() - 2, options.window);
  result.taps.assign(fixed.dim() - 2,
                     GaussianTaps(options.window, options.sigma));
  result.formula.kind = kernels::CorrelationKind::kStructural;
  result.formula.clip_window = options.clip_window;
  result.formula.c1 = 0.01 * range * 0.01 * range;
  result.formula.c2 = 0.03 * range * 0.03 * range;
  result.factor = -1;
  result.check_finite = options.check_finite;
  return result;
}

}  // namespace

Ssim::Ssim(const SsimOptions& options) : options_(options) {
  TORCH_CHECK_VALUE(options.window > 0 && options.window % 2 == 1,
                    "Ssim: wanted an odd window, got ", options.window);
  TORCH_CHECK_VALUE(options.sigma > 0, "Ssim: wanted a positive sigma, got ",
                    options.sigma);
  TORCH_CHECK_VALUE(options.intensity_range >= 0,
                    "Ssim: wanted an intensity range of at least 0, got ",
                    options.intensity_range);
}

at::Tensor Ssim::operator()(const at::Tensor& fixed,
                            const at::Tensor& moving) const {
  return Loss(fixed, moving, at::Tensor());
}

at::Tensor Ssim::operator()(const at::Tensor& fixed, const at::Tensor& moving,
                            const at::Tensor& weight) const {
  CheckImagePair("Ssim", fixed, moving);
  CheckWeight("Ssim", weight, fixed);
  return Loss(fixed, moving, weight);
}

at::Tensor Ssim::Loss(const at::Tensor& fixed, const at::Tensor& moving,
                      const at::Tensor& weight) const {
  CheckImagePair("Ssim", fixed, moving);
  const precision::Fp32Region region;
  const at::ScalarType compute = CommonComputeType(fixed, moving);
  const at::Tensor f = fixed.to(compute), m = moving.to(compute);
  if (f.is_cpu() && options_.intensity_range == 0) {
    // Before the range is taken.
    CheckFinite("Ssim", "fixed", f);
    CheckFinite("Ssim", "moving", m);
  }
  return 1 + MeanWindowCorrelation(f, m, weight,
                                   CorrelationOptions(options_, f, m));
}

at::Tensor Ssim::Map(const at::Tensor& fixed, const at::Tensor& moving) const {
  CheckImagePair("Ssim", fixed, moving);
  const precision::Fp32Region region;
  const at::ScalarType compute = CommonComputeType(fixed, moving);
  const at::Tensor f = fixed.to(compute), m = moving.to(compute);
  CheckFiniteIf(options_.check_finite, "Ssim", "fixed", f);
  CheckFiniteIf(options_.check_finite, "Ssim", "moving", m);
  return WindowCorrelationByOperators(f, m, CorrelationOptions(options_, f, m));
}

}  // namespace mir::losses
