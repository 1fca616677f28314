#include "mir/losses/window_correlation.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "mir/losses/arguments.h"
#include "mir/losses/box_sum.h"

namespace mir::losses {
namespace {

// An image whose variance is less than this share of its squared mean holds
// nothing but the rounding of float32.
constexpr double kFlatShare = 1e-12;

std::vector<int64_t> Radii(const at::Tensor& image,
                           const WindowCorrelationOptions& options) {
  TORCH_CHECK_VALUE(
      options.window.size() + 2 == static_cast<size_t>(image.dim()),
      options.loss, ": wanted images with ", options.window.size(),
      " spatial axes, as the window has, got ", image.sizes());
  std::vector<int64_t> radii;
  for (const int64_t width : options.window) radii.push_back(width / 2);
  return radii;
}

// The number of windows of all channels and samples is that of voxels.
kernels::CorrelationShape ShapeOf(
    const at::Tensor& image, const std::vector<int64_t>& radii,
    const std::vector<std::vector<double>>& taps) {
  kernels::CorrelationShape shape;
  shape.volumes = image.size(0) * image.size(1);
  shape.size = {1, image.size(-2), image.size(-1)};
  shape.radius = {0, radii[radii.size() - 2], radii.back()};
  if (radii.size() == 3) {
    shape.size[0] = image.size(2);
    shape.radius[0] = radii[0];
  }
  if (!taps.empty()) {
    shape.taps = {std::vector<double>{1.0}, taps[taps.size() - 2], taps.back()};
    if (taps.size() == 3) shape.taps[0] = taps[0];
  }
  return shape;
}

template <typename T>
std::vector<kernels::ImageStatistics> Measure(
    const at::Tensor& image, const char* name, int64_t volumes,
    const WindowCorrelationOptions& options) {
  std::vector<kernels::ImageStatistics> statistics = kernels::MeasureImages(
      image.const_data_ptr<T>(), volumes, image.numel() / volumes);
  for (kernels::ImageStatistics& one : statistics) {
    if (!std::isfinite(one.variance)) {
      CheckFinite(options.loss, name, image);
      TORCH_CHECK_VALUE(false, options.loss, ": the values of ", name,
                        " are too large: their squares overflow float64");
    }
  }
  return statistics;
}

bool IsFlat(const kernels::ImageStatistics& statistics) {
  return !(statistics.variance >
           kFlatShare * statistics.mean * statistics.mean);
}

struct CpuArguments {
  const WindowCorrelationOptions& options;
  std::vector<int64_t> radii;
  at::Tensor weight;  // Like the images and contiguous, or undefined.
  bool x_needs_gradient;
  bool y_needs_gradient;
};

class CpuCorrelation : public torch::autograd::Function<CpuCorrelation> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context,
                            const at::Tensor& x, const at::Tensor& y,
                            const CpuArguments& arguments) {
    return x.scalar_type() == at::kDouble
               ? ForwardAs<double>(context, x.contiguous(), y.contiguous(),
                                   arguments)
               : ForwardAs<float>(context, x.contiguous(), y.contiguous(),
                                  arguments);
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      const torch::autograd::variable_list& gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "the gradient of a local correlation cannot be differentiated "
                "again on the CPU; leave create_graph off");
    const double scale = gradients[0].item<double>();
    const torch::autograd::variable_list saved = context->get_saved_variables();
    return {Finish(context, "x", saved[0], saved[2], scale),
            Finish(context, "y", saved[1], saved[3], scale), at::Tensor()};
  }

 private:
  template <typename T>
  static at::Tensor ForwardAs(torch::autograd::AutogradContext* context,
                              const at::Tensor& x, const at::Tensor& y,
                              const CpuArguments& arguments) {
    const WindowCorrelationOptions& options = arguments.options;
    const kernels::CorrelationShape shape =
        ShapeOf(x, arguments.radii, options.taps);
    const int64_t count = x.numel() / shape.volumes;
    std::vector<kernels::ImageStatistics> x_stats =
        Measure<T>(x, "fixed", shape.volumes, options);
    std::vector<kernels::ImageStatistics> y_stats =
        Measure<T>(y, "moving", shape.volumes, options);
    std::vector<bool> flat(shape.volumes, false);
    for (int64_t volume = 0; volume < shape.volumes; ++volume) {
      for (kernels::ImageStatistics* one :
           {&x_stats[volume], &y_stats[volume]}) {
        if (options.relative_floor > 0) {
          if (IsFlat(*one)) flat[volume] = true;
          one->floor = options.relative_floor * one->variance;
        } else {
          one->mean = 0;
        }
      }
    }

    const at::Tensor grad_x =
        arguments.x_needs_gradient ? at::empty_like(x) : at::Tensor();
    const at::Tensor grad_y =
        arguments.y_needs_gradient ? at::empty_like(y) : at::Tensor();
    const std::vector<kernels::CorrelationSums> sums =
        kernels::CorrelateWindows<T>(
            x.const_data_ptr<T>(), y.const_data_ptr<T>(), shape,
            options.formula, x_stats, y_stats,
            arguments.weight.defined() ? arguments.weight.const_data_ptr<T>()
                                       : nullptr,
            grad_x.defined() ? grad_x.mutable_data_ptr<T>() : nullptr,
            grad_y.defined() ? grad_y.mutable_data_ptr<T>() : nullptr);

    // Where all weights are 0, so are the sums.
    double total_weight = x.numel();
    if (arguments.weight.defined()) {
      total_weight = arguments.weight.sum(at::kDouble).item<double>();
      if (total_weight == 0) total_weight = 1;
    }
    double total = 0;
    std::vector<double> slope_x(shape.volumes), slope_y(shape.volumes);
    std::vector<double> mean_x(shape.volumes), mean_y(shape.volumes);
    for (int64_t volume = 0; volume < shape.volumes; ++volume) {
      if (flat[volume]) {
        for (const at::Tensor& gradient : {grad_x, grad_y}) {
          if (gradient.defined()) {
            gradient.view({shape.volumes, count})[volume].zero_();
          }
        }
        continue;
      }
      total += sums[volume].value;
      // The floors move with the images' variances, too.
      const double each = 2 * options.relative_floor / count / total_weight;
      slope_x[volume] = each * sums[volume].floor_x;
      slope_y[volume] = each * sums[volume].floor_y;
      mean_x[volume] = x_stats[volume].mean;
      mean_y[volume] = y_stats[volume].mean;
    }
    if (grad_x.defined() || grad_y.defined()) {
      context->save_for_backward({x, y, grad_x, grad_y});
      context->saved_data["total_weight"] = total_weight;
      context->saved_data["slope_x"] = slope_x;
      context->saved_data["slope_y"] = slope_y;
      context->saved_data["mean_x"] = mean_x;
      context->saved_data["mean_y"] = mean_y;
    }
    return at::full({}, total / total_weight, x.options());
  }

  // `raw` is the gradient of the sum, not of the mean.
  static at::Tensor Finish(torch::autograd::AutogradContext* context,
                           const std::string& which, const at::Tensor& image,
                           const at::Tensor& raw, double scale) {
    if (!raw.defined()) return at::Tensor();
    std::vector<double> slope =
        context->saved_data["slope_" + which].toDoubleVector();
    for (double& one : slope) one *= scale;
    const std::vector<double> mean =
        context->saved_data["mean_" + which].toDoubleVector();
    scale /= context->saved_data["total_weight"].toDouble();
    const int64_t volumes = slope.size();
    const int64_t count = raw.numel() / volumes;
    const at::Tensor out = at::empty_like(raw);
    if (raw.scalar_type() == at::kDouble) {
      kernels::ScaleGradient(
          raw.const_data_ptr<double>(), image.const_data_ptr<double>(), volumes,
          count, scale, slope, mean, out.mutable_data_ptr<double>());
    } else {
      kernels::ScaleGradient(raw.const_data_ptr<float>(),
                             image.const_data_ptr<float>(), volumes, count,
                             scale, slope, mean, out.mutable_data_ptr<float>());
    }
    return out;
  }
};

at::Tensor SumWindows(const at::Tensor& image,
                      const std::vector<int64_t>& radii,
                      const WindowCorrelationOptions& options) {
  return options.taps.empty() ? BoxSum(image, radii)
                              : WindowSum(image, options.taps);
}

// The number of voxels that each window sums, or the sum of its weights.
at::Tensor Counts(const at::Tensor& image, const std::vector<int64_t>& radii,
                  const WindowCorrelationOptions& options) {
  const kernels::CorrelationFormula& formula = options.formula;
  if (formula.clip_window) {
    std::vector<int64_t> one_volume = image.sizes().vec();
    one_volume[0] = one_volume[1] = 1;
    return SumWindows(at::ones(one_volume, image.options()), radii, options);
  }
  double divisor = options.taps.empty() ? formula.divisor : 1;
  if (divisor == 0) {
    divisor = 1;
    for (const int64_t radius : radii) divisor *= 2 * radius + 1;
  }
  return at::full({}, divisor, image.options());
}

}  // namespace

at::Tensor WindowCorrelationByOperators(
    const at::Tensor& x, const at::Tensor& y,
    const WindowCorrelationOptions& options) {
  const std::vector<int64_t> radii = Radii(x, options);
  const kernels::CorrelationFormula& formula = options.formula;
  if (options.check_finite) {
    CheckFinite(options.loss, "fixed", x);
    CheckFinite(options.loss, "moving", y);
  }
  std::vector<int64_t> spatial;
  for (int64_t axis = 2; axis < x.dim(); ++axis) spatial.push_back(axis);

  at::Tensor images[] = {x.to(at::kDouble), y.to(at::kDouble)};
  at::Tensor floors[2];
  at::Tensor counted;
  if (options.relative_floor > 0) {
    for (int which = 0; which < 2; ++which) {
      // The correlation does not change with the mean.
      const at::Tensor mean =
          images[which].detach().mean(spatial, /*keepdim=*/true);
      images[which] = images[which] - mean;
      const at::Tensor variance =
          images[which].square().mean(spatial, /*keepdim=*/true);
      const at::Tensor varies = variance.detach() > kFlatShare * mean.square();
      floors[which] = at::where(varies, options.relative_floor * variance,
                                at::full({}, 1.0, variance.options()));
      counted = counted.defined() ? counted.logical_and(varies) : varies;
    }
  }

  const at::Tensor inverse_n = Counts(images[0], radii, options).reciprocal();
  const auto sum = [&](const at::Tensor& image) {
    return SumWindows(image, radii, options);
  };
  const at::Tensor sum_x = sum(images[0]);
  const at::Tensor sum_y = sum(images[1]);
  at::Tensor cov = sum(images[0] * images[1]) - sum_x * sum_y * inverse_n;
  at::Tensor variances[] = {
      sum(images[0].square()) - sum_x.square() * inverse_n,
      sum(images[1].square()) - sum_y.square() * inverse_n};
  if (formula.kind == kernels::CorrelationKind::kStructural) {
    const at::Tensor mean_x = sum_x * inverse_n, mean_y = sum_y * inverse_n;
    return (2 * mean_x * mean_y + formula.c1) *
           (2 * cov * inverse_n + formula.c2) /
           ((mean_x.square() + mean_y.square() + formula.c1) *
            ((variances[0] + variances[1]) * inverse_n + formula.c2));
  }
  if (formula.per_voxel) cov = cov * inverse_n;
  for (int which = 0; which < 2; ++which) {
    if (formula.per_voxel) variances[which] = variances[which] * inverse_n;
    variances[which] = variances[which].clamp_min(formula.smallest_variance);
    if (floors[which].defined()) {
      variances[which] = variances[which] + floors[which];
    }
  }
  const at::Tensor den = (variances[0] * variances[1] + formula.add)
                             .clamp_min(formula.smallest_den);
  at::Tensor value = formula.kind == kernels::CorrelationKind::kSquared
                         ? cov.square() / den
                         : cov * den.rsqrt();
  if (counted.defined()) value = value * counted;
  return value;
}

at::Tensor MeanWindowCorrelationByOperators(
    const at::Tensor& x, const at::Tensor& y, const at::Tensor& weight,
    const WindowCorrelationOptions& options) {
  const at::Tensor value = WindowCorrelationByOperators(x, y, options);
  return (weight.defined() ? WeightedMean(value, weight) : value.mean())
      .to(x.scalar_type());
}

at::Tensor MeanWindowCorrelation(const at::Tensor& x, const at::Tensor& y,
                                 const at::Tensor& weight,
                                 const WindowCorrelationOptions& options) {
  if (!x.is_cpu()) {
    return MeanWindowCorrelationByOperators(x, y, weight, options);
  }
  const bool gradients = at::GradMode::is_enabled();
  return CpuCorrelation::apply(
      x, y,
      CpuArguments{
          options, Radii(x, options),
          weight.defined()
              ? weight.detach().to(x.scalar_type()).expand_as(x).contiguous()
              : at::Tensor(),
          gradients && x.requires_grad(), gradients && y.requires_grad()});
}

at::Tensor MeanWindowCorrelation(const at::Tensor& x, const at::Tensor& y,
                                 const WindowCorrelationOptions& options) {
  return MeanWindowCorrelation(x, y, at::Tensor(), options);
}

}  // namespace mir::losses
