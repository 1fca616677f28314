#include "mir/losses/normalized_gradient_field.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <array>
#include <vector>

#include "mir/losses/arguments.h"
#include "mir/losses/box_sum.h"
#include "mir/losses/fused_loss.h"
#include "mir/losses/kernels/gradient_field.h"
#include "mir/precision/fp32_region.h"

namespace mir::losses {
namespace {

constexpr char kName[] = "NormalizedGradientField";

kernels::GradientFieldFormula FormulaOf(
    const NormalizedGradientFieldOptions& options) {
  kernels::GradientFieldFormula formula;
  formula.radius = options.smooth_window / 2;
  formula.replicate = !options.as_mir;
  formula.epsilon = options.as_mir ? options.epsilon : 0;
  formula.eta_a = formula.eta_b = options.edge * options.edge;
  return formula;
}

// Without mean and of standard deviation 1, each channel of each sample; zeros
// where that is constant.
at::Tensor Standardized(const at::Tensor& image) {
  std::vector<int64_t> spatial;
  for (int64_t axis = 2; axis < image.dim(); ++axis) spatial.push_back(axis);
  const at::Tensor mean = image.mean(spatial, /*keepdim=*/true);
  const at::Tensor centred = image - mean;
  const at::Tensor variance = centred.square().mean(spatial, /*keepdim=*/true);
  // Less is the rounding of float32.
  const at::Tensor flat =
      (variance.detach() > 1e-12 * mean.detach().square()).logical_not();
  return (centred * variance.masked_fill(flat, 1).rsqrt()).masked_fill(flat, 0);
}

std::vector<at::Tensor> Prepare(const at::Tensor& fixed,
                                const at::Tensor& moving,
                                const NormalizedGradientFieldOptions& options,
                                bool check_on_cpu) {
  CheckImagePair(kName, fixed, moving);
  const at::ScalarType compute = CommonComputeType(fixed, moving);
  std::vector<at::Tensor> images = {fixed.to(compute), moving.to(compute)};
  if (options.check_finite || (check_on_cpu && images[0].is_cpu())) {
    CheckFinite(kName, "fixed", images[0]);
    CheckFinite(kName, "moving", images[1]);
  }
  if (!options.as_mir) {
    for (at::Tensor& image : images) image = Standardized(image);
  }
  return images;
}

// The central difference along `axis`.
at::Tensor Derivative(const at::Tensor& image, int64_t axis, bool replicate) {
  const int64_t size = image.size(axis);
  at::Tensor first = image.narrow(axis, 0, 1);
  at::Tensor last = image.narrow(axis, size - 1, 1);
  if (!replicate) {
    first = at::zeros_like(first);
    last = at::zeros_like(last);
  }
  return 0.5 * (at::cat({image.narrow(axis, 1, size - 1), last}, axis) -
                at::cat({first, image.narrow(axis, 0, size - 1)}, axis));
}

}  // namespace

NormalizedGradientField::NormalizedGradientField(
    const NormalizedGradientFieldOptions& options)
    : options_(options) {
  TORCH_CHECK_VALUE(options.smooth_window > 0 && options.smooth_window % 2 == 1,
                    kName, ": wanted an odd window, got ",
                    options.smooth_window);
  TORCH_CHECK_VALUE(options.edge > 0 && options.epsilon > 0, kName,
                    ": wanted a positive edge and epsilon, got ", options.edge,
                    " and ", options.epsilon);
}

at::Tensor NormalizedGradientField::operator()(const at::Tensor& fixed,
                                               const at::Tensor& moving) const {
  if (!fixed.is_cpu()) {
    return NormalizedGradientFieldByOperators(fixed, moving, options_);
  }
  const precision::Fp32Region region;
  const std::vector<at::Tensor> images =
      Prepare(fixed, moving, options_, /*check_on_cpu=*/true);
  const kernels::GradientFieldFormula formula = FormulaOf(options_);
  return FusedLoss(
      kName, images[0], images[1],
      [formula](const at::Tensor& x, const at::Tensor& y,
                const at::Tensor& grad_x, const at::Tensor& grad_y) {
        const int axes = static_cast<int>(x.dim() - 2);
        const std::array<int64_t, 3> size = {axes == 3 ? x.size(2) : 1,
                                             x.size(-2), x.size(-1)};
        const auto compare = [&](auto zero, const at::Tensor& a,
                                 const at::Tensor& b, const at::Tensor& out) {
          using T = decltype(zero);
          return kernels::CompareGradientFields<T>(
              a.const_data_ptr<T>(), b.const_data_ptr<T>(),
              x.size(0) * x.size(1), size, axes, formula,
              out.defined() ? out.mutable_data_ptr<T>() : nullptr);
        };
        const auto run = [&](const at::Tensor& a, const at::Tensor& b,
                             const at::Tensor& out) {
          const double sum = x.scalar_type() == at::kDouble
                                 ? compare(0.0, a, b, out)
                                 : compare(0.0f, a, b, out);
          if (out.defined()) out.mul_(-1.0 / x.numel());
          return 1 - sum / x.numel();
        };
        // Symmetric, hence differentiable in either as in the second one.
        if (grad_x.defined()) {
          const double value = run(y, x, grad_x);
          if (!grad_y.defined()) return value;
        }
        return run(x, y, grad_y);
      });
}

at::Tensor NormalizedGradientFieldByOperators(
    const at::Tensor& fixed, const at::Tensor& moving,
    const NormalizedGradientFieldOptions& options) {
  const precision::Fp32Region region;
  std::vector<at::Tensor> images =
      Prepare(fixed, moving, options, /*check_on_cpu=*/false);
  const kernels::GradientFieldFormula formula = FormulaOf(options);
  const int64_t axes = fixed.dim() - 2;
  const std::vector<int64_t> radii(axes, formula.radius);
  for (at::Tensor& image : images) {
    if (formula.radius == 0) continue;
    std::vector<int64_t> one_volume = image.sizes().vec();
    one_volume[0] = one_volume[1] = 1;
    const at::Tensor ones = at::ones(one_volume, image.options());
    double whole = 1;
    for (const int64_t radius : radii) whole *= 2 * radius + 1;
    image = BoxSum(image, radii) /
            (formula.replicate ? BoxSum(ones, radii) : ones * whole);
  }
  at::Tensor dot, norms[2];
  const auto add = [](at::Tensor& sum, const at::Tensor& term) {
    sum = sum.defined() ? sum + term : term;
  };
  for (int64_t axis = 2; axis < fixed.dim(); ++axis) {
    const at::Tensor a = Derivative(images[0], axis, formula.replicate);
    const at::Tensor b = Derivative(images[1], axis, formula.replicate);
    add(dot, a * b);
    add(norms[0], a.square());
    add(norms[1], b.square());
  }
  return 1 - ((dot.square() + formula.epsilon) /
              ((norms[0] + formula.eta_a) * (norms[1] + formula.eta_b) +
               formula.epsilon))
                 .mean();
}

}  // namespace mir::losses
