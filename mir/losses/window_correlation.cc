#include "mir/losses/window_correlation.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "mir/losses/arguments.h"
#include "mir/losses/box_sum.h"
#include "mir/losses/fused_loss.h"

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
    if (options.relative_floor > 0) {
      one.floor = options.relative_floor * one.variance;
    } else {
      one.mean = 0;
    }
  }
  return statistics;
}

bool IsFlat(const kernels::ImageStatistics& statistics) {
  return !(statistics.variance >
           kFlatShare * statistics.mean * statistics.mean);
}

// `weight` is undefined or like the images, and contiguous.
template <typename T>
FusedResult CorrelateOnCpu(const at::Tensor& x, const at::Tensor& y,
                           const at::Tensor& weight,
                           const std::vector<int64_t>& radii,
                           const WindowCorrelationOptions& options,
                           const at::Tensor& grad_x, const at::Tensor& grad_y) {
  const kernels::CorrelationShape shape = ShapeOf(x, radii, options.taps);
  const int64_t count = x.numel() / shape.volumes;
  const bool relative = options.relative_floor > 0;
  // No square of a float32 overflows, and the value shows what is not finite.
  const bool measured = relative || x.scalar_type() == at::kDouble;
  std::vector<kernels::ImageStatistics> x_stats(shape.volumes);
  std::vector<kernels::ImageStatistics> y_stats(shape.volumes);
  if (measured) {
    x_stats = Measure<T>(x, "fixed", shape.volumes, options);
    y_stats = Measure<T>(y, "moving", shape.volumes, options);
  }

  // Where all weights are 0, so are the sums.
  double total_weight = x.numel();
  if (weight.defined()) {
    total_weight = weight.sum(at::kDouble).item<double>();
    if (total_weight == 0) total_weight = 1;
  }
  const double factor = options.factor / total_weight;
  T* const out_x = grad_x.defined() ? grad_x.mutable_data_ptr<T>() : nullptr;
  T* const out_y = grad_y.defined() ? grad_y.mutable_data_ptr<T>() : nullptr;
  const T* const data_x = x.const_data_ptr<T>();
  const T* const data_y = y.const_data_ptr<T>();
  const std::vector<kernels::CorrelationSums> sums =
      kernels::CorrelateWindows<T>(
          data_x, data_y, shape, options.formula, x_stats, y_stats,
          weight.defined() ? weight.const_data_ptr<T>() : nullptr, factor,
          out_x, out_y);

  double total = 0;
  std::vector<double> slopes_x, slopes_y;
  for (int64_t volume = 0; volume < shape.volumes; ++volume) {
    const int64_t offset = volume * count;
    if (relative && (IsFlat(x_stats[volume]) || IsFlat(y_stats[volume]))) {
      if (out_x) std::fill_n(out_x + offset, count, T(0));
      if (out_y) std::fill_n(out_y + offset, count, T(0));
      slopes_x.push_back(0);
      slopes_y.push_back(0);
      continue;
    }
    total += sums[volume].value;
    // The floors move with the images' variances, too.
    const double each = 2 * options.relative_floor / count * factor;
    slopes_x.push_back(each * sums[volume].floor_x);
    slopes_y.push_back(each * sums[volume].floor_y);
  }
  if (!measured && !std::isfinite(total)) {
    CheckFinite(options.loss, "fixed", x);
    CheckFinite(options.loss, "moving", y);
  }
  FusedResult result = factor * total;
  if (!relative || !(out_x || out_y)) return result;
  const auto finish = [count](const at::Tensor& image,
                              const std::vector<kernels::ImageStatistics>& of,
                              const std::vector<double>& slopes, double scale,
                              const at::Tensor& gradient) {
    if (!gradient.defined()) return;
    for (size_t volume = 0; volume < slopes.size(); ++volume) {
      const int64_t offset = volume * count;
      kernels::ScaleGradient(image.const_data_ptr<T>() + offset, count, scale,
                             scale * slopes[volume], of[volume].mean,
                             gradient.mutable_data_ptr<T>() + offset);
    }
  };
  result.finish = [=](const at::Tensor& x, const at::Tensor& y, double scale,
                      const at::Tensor& to_x, const at::Tensor& to_y) {
    finish(x, x_stats, slopes_x, scale, to_x);
    finish(y, y_stats, slopes_y, scale, to_y);
  };
  return result;
}

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
  const at::Tensor mean =
      weight.defined() ? WeightedMean(value, weight) : value.mean();
  return (options.factor * mean).to(x.scalar_type());
}

at::Tensor MeanWindowCorrelation(const at::Tensor& x, const at::Tensor& y,
                                 const at::Tensor& weight,
                                 const WindowCorrelationOptions& options) {
  if (!x.is_cpu()) {
    return MeanWindowCorrelationByOperators(x, y, weight, options);
  }
  const std::vector<int64_t> radii = Radii(x, options);
  const at::Tensor weights =
      weight.defined()
          ? weight.detach().to(x.scalar_type()).expand_as(x).contiguous()
          : weight;
  return FusedLoss(
      options.loss, x, y,
      [options, radii, weights](const at::Tensor& x, const at::Tensor& y,
                                const at::Tensor& grad_x,
                                const at::Tensor& grad_y) {
        return x.scalar_type() == at::kDouble
                   ? CorrelateOnCpu<double>(x, y, weights, radii, options,
                                            grad_x, grad_y)
                   : CorrelateOnCpu<float>(x, y, weights, radii, options,
                                           grad_x, grad_y);
      });
}

at::Tensor MeanWindowCorrelation(const at::Tensor& x, const at::Tensor& y,
                                 const WindowCorrelationOptions& options) {
  return MeanWindowCorrelation(x, y, at::Tensor(), options);
}

}  // namespace mir::losses
