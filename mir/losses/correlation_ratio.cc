#include "mir/losses/correlation_ratio.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "mir/losses/arguments.h"
#include "mir/losses/fused_loss.h"
#include "mir/losses/kernels/window_correlation.h"
#include "mir/losses/parzen.h"
#include "mir/losses/patch_loss.h"
#include "mir/precision/fp32_region.h"

namespace mir::losses {
namespace {

// An image whose variance is less than this share of its squared mean holds
// nothing but the rounding of float32.
constexpr double kFlatShare = 1e-12;

constexpr double kMirEpsilon = 1e-5;

void CheckOptions(const char* loss, const CorrelationRatioOptions& options) {
  TORCH_CHECK_VALUE(options.bins >= 2 && options.bins <= 256, loss,
                    ": wanted from 2 to 256 bins, got ", options.bins);
  TORCH_CHECK_VALUE(options.sigma >= 0.5 && options.sigma <= 16, loss,
                    ": wanted a sigma of 0.5 to 16 bins, got ", options.sigma);
}

std::pair<double, double> RangeOf(const at::Tensor& image,
                                  const CorrelationRatioOptions& options) {
  if (options.as_mir) return {0, 1};
  return IntensityRange(image);
}

ParzenWindow BinsFor(const at::Tensor& image,
                     const CorrelationRatioOptions& options) {
  const auto [low, high] = RangeOf(image, options);
  return GaussianWindow(
      options.bins, low, high,
      options.as_mir ? options.sigma / std::sqrt(2.0) : options.sigma,
      /*normalized=*/!options.as_mir, /*clamp_low=*/low);
}

// Of the bins of one image [V, bins]: the sums of weights, and of weights times
// the other image less `centre`; and of the other image the mean and the
// variance, [V], of `count` voxels.
at::Tensor RatioOf(const at::Tensor& weights, const at::Tensor& sums,
                   const at::Tensor& mean, const at::Tensor& variance,
                   double centre, double count,
                   const CorrelationRatioOptions& options) {
  const at::Tensor total = (mean - centre).unsqueeze(1);
  if (options.as_mir) {
    const at::Tensor means = sums / (weights + kMirEpsilon);
    const at::Tensor between = (weights * (means - total).square()).sum(1) /
                               (weights.sum(1) + kMirEpsilon);
    return between /
           (variance * (count / std::max(count - 1, 1.0)) + kMirEpsilon) / 3;
  }
  // Bins that nothing lies in have sums of 0, too.
  const at::Tensor means = sums / (weights + 1e-12);
  const at::Tensor between =
      (weights * (means - total).square()).sum(1) / count;
  const at::Tensor varies =
      variance.detach() > kFlatShare * mean.detach().square();
  return between / at::where(varies, variance, at::ones_like(variance)) *
         varies;
}

// The mean and variance of each volume, [V, count], in float64.
std::pair<at::Tensor, at::Tensor> Statistics(const at::Tensor& image) {
  const int64_t volumes = image.size(0);
  const auto measured =
      image.scalar_type() == at::kDouble
          ? kernels::MeasureImages(image.const_data_ptr<double>(), volumes,
                                   image.size(1))
          : kernels::MeasureImages(image.const_data_ptr<float>(), volumes,
                                   image.size(1));
  const at::TensorOptions options(at::kDouble);
  const at::Tensor mean = at::empty({volumes}, options);
  const at::Tensor variance = at::empty({volumes}, options);
  for (int64_t volume = 0; volume < volumes; ++volume) {
    mean[volume] = measured[volume].mean;
    variance[volume] = measured[volume].variance;
  }
  return {mean, variance};
}

// The same bits for every number of threads on the CPU.
double MeanOf(const at::Tensor& image) {
  if (!image.is_cpu()) return image.detach().mean().item<double>();
  return Statistics(image.detach().contiguous().view({1, -1}))
      .first.item<double>();
}

// One image explained by the bins of the other one.
struct Direction {
  ParzenWindow bins, value;
  double centre = 0;
};

class Kernel {
 public:
  Kernel(const Direction& x_explained, const Direction& y_explained,
         const CorrelationRatioOptions& options)
      : directions_{x_explained, y_explained}, options_(options) {}

  double operator()(const at::Tensor& x, const at::Tensor& y,
                    const at::Tensor& grad_x, const at::Tensor& grad_y) const {
    const int64_t volumes = x.size(0) * x.size(1);
    const auto flat = [&](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.view({volumes, -1}) : tensor;
    };
    const at::Tensor images[] = {flat(x), flat(y)};
    const at::Tensor outs[] = {flat(grad_x), flat(grad_y)};
    const double count = static_cast<double>(images[0].size(1));
    const bool gradient = grad_x.defined() || grad_y.defined();

    // What is differentiated: of each direction, then of each image.
    std::vector<at::Tensor> leaves(6);
    at::Tensor ratio;
    const at::AutoGradMode mode(gradient);
    for (int which = 0; which < 2; ++which) {
      const Direction& own = directions_[which];
      at::Tensor& moments = leaves[3 * which];
      at::Tensor& mean = leaves[3 * which + 1];
      at::Tensor& variance = leaves[3 * which + 2];
      moments = ParzenMoments(images[1 - which], images[which], at::Tensor(),
                              own.bins, own.value);
      std::tie(mean, variance) = Statistics(images[which]);
      for (int leaf = 0; leaf < 3; ++leaf) {
        leaves[3 * which + leaf].requires_grad_(gradient);
      }
      const at::Tensor joint = HistogramOf(moments, own.bins, own.value).joint;
      const at::Tensor one =
          RatioOf(joint.select(2, 0), joint.select(2, 1), mean, variance,
                  own.centre, count, options_);
      ratio = ratio.defined() ? ratio + one : one;
    }
    const at::Tensor value = ratio.mean() / -2;
    if (!gradient) return value.item<double>();

    const std::vector<at::Tensor> slopes =
        torch::autograd::grad({value}, leaves);
    const at::NoGradGuard no_grad;
    for (int which = 0; which < 2; ++which) {
      if (!outs[which].defined()) continue;
      const at::Tensor& other = images[1 - which];
      // As the image that is explained. Its mean and variance add a line.
      const Direction& explained = directions_[which];
      at::Tensor table = SlopeTable(slopes[3 * which], explained.bins,
                                    explained.value, /*by_x=*/false);
      const auto per_volume = [](const at::Tensor& tensor) {
        return tensor.view({-1, 1, 1});
      };
      const at::Tensor rise = per_volume(slopes[3 * which + 2] * (2 / count));
      const at::Tensor mean =
          per_volume(leaves[3 * which + 1].detach() - explained.centre);
      table.select(4, 0).select(3, 0).add_(
          per_volume(slopes[3 * which + 1] / count) - rise * mean);
      table.select(4, 1).select(3, 0).add_(rise);
      WriteSlopes(other, images[which], at::Tensor(), explained.bins,
                  explained.value, table, /*by_x=*/false, /*add=*/false,
                  outs[which]);
      // As the image whose bins explain.
      const Direction& explains = directions_[1 - which];
      table = SlopeTable(slopes[3 * (1 - which)], explains.bins, explains.value,
                         /*by_x=*/true);
      WriteSlopes(images[which], other, at::Tensor(), explains.bins,
                  explains.value, table, /*by_x=*/true, /*add=*/true,
                  outs[which]);
    }
    return value.item<double>();
  }

 private:
  Direction directions_[2];
  CorrelationRatioOptions options_;
};

at::Tensor RatioByOperators(const at::Tensor& explained,
                            const at::Tensor& explains, const Direction& own,
                            const CorrelationRatioOptions& options) {
  const at::Tensor values = explained.to(at::kDouble).flatten(0, 1).flatten(1);
  const at::Tensor binned = explains.flatten(0, 1).flatten(1);
  const at::Tensor joint =
      HistogramByOperators(binned, values, at::Tensor(), own.bins, own.value)
          .joint;
  const at::Tensor mean = values.mean(1);
  const at::Tensor variance = (values - mean.unsqueeze(1)).square().mean(1);
  return RatioOf(joint.select(2, 0), joint.select(2, 1), mean, variance,
                 own.centre, static_cast<double>(values.size(1)), options);
}

struct Images {
  at::Tensor fixed, moving;
};

Images Prepare(const char* loss, const at::Tensor& fixed,
               const at::Tensor& moving, bool check_finite) {
  CheckImagePair(loss, fixed, moving);
  const at::ScalarType compute = CommonComputeType(fixed, moving);
  const Images images{fixed.to(compute), moving.to(compute)};
  CheckFiniteIf(check_finite, loss, "fixed", images.fixed);
  CheckFiniteIf(check_finite, loss, "moving", images.moving);
  return images;
}

// Of each patch [P, n]: x as it is explained by y.
at::Tensor PatchRatio(const at::Tensor& x, const at::Tensor& y,
                      const at::Tensor& inside,
                      const std::pair<double, double>& range,
                      const CorrelationRatioOptions& options) {
  const double sigma =
      options.sigma * (range.second - range.first) / (options.bins - 1);
  const at::Tensor centres =
      at::linspace(range.first, range.second, options.bins, y.options());
  const at::Tensor square =
      (options.as_mir ? y : y.clamp(range.first, range.second))
          .unsqueeze(2)
          .sub(centres)
          .square();
  if (options.as_mir) {
    const at::Tensor weights = (square * (-1 / (sigma * sigma))).exp();
    const at::Tensor counts = weights.sum(1);
    const at::Tensor means =
        at::bmm(x.unsqueeze(1), weights).squeeze(1) / (counts + kMirEpsilon);
    const at::Tensor mean = x.mean(1, /*keepdim=*/true);
    const at::Tensor between =
        (counts * (means - mean).square()).sum(1) / counts.sum(1);
    const double count = static_cast<double>(x.size(1));
    const at::Tensor variance =
        (x - mean).square().sum(1) / std::max(count - 1, 1.0);
    return between / (variance + kMirEpsilon) / 3;
  }
  const at::Tensor share = inside / inside.sum(1, /*keepdim=*/true);
  const at::Tensor mean = (x * share).sum(1, /*keepdim=*/true);
  const at::Tensor centred = x - mean;
  const at::Tensor weights =
      (square * (-0.5 / (sigma * sigma))).softmax(2) * share.unsqueeze(2);
  const at::Tensor counts = weights.sum(1);
  const at::Tensor means =
      at::bmm(centred.unsqueeze(1), weights).squeeze(1) / (counts + 1e-12);
  const at::Tensor between = (counts * means.square()).sum(1);
  const at::Tensor variance = (centred.square() * share).sum(1);
  const at::Tensor varies =
      variance.detach() > kFlatShare * mean.detach().squeeze(1).square();
  return between / at::where(varies, variance, at::ones_like(variance)) *
         varies;
}

}  // namespace

CorrelationRatio::CorrelationRatio(const CorrelationRatioOptions& options)
    : options_(options) {
  CheckOptions("CorrelationRatio", options);
}

at::Tensor CorrelationRatio::operator()(const at::Tensor& fixed,
                                        const at::Tensor& moving) const {
  const precision::Fp32Region region;
  const auto [f, m] =
      Prepare("CorrelationRatio", fixed, moving, options_.check_finite);
  const auto direction = [&](const at::Tensor& explained,
                             const at::Tensor& explains) {
    Direction own;
    own.bins = BinsFor(explains, options_);
    // Its epsilons see where zero is.
    own.centre = options_.as_mir ? 0 : MeanOf(explained);
    own.value = ValueWindow(own.centre);
    return own;
  };
  const Direction f_explained = direction(f, m), m_explained = direction(m, f);
  if (!f.is_cpu()) {
    return ((RatioByOperators(f, m, f_explained, options_) +
             RatioByOperators(m, f, m_explained, options_))
                .mean() /
            -2)
        .to(f.scalar_type());
  }
  return FusedLoss("CorrelationRatio", f, m,
                   Kernel(f_explained, m_explained, options_));
}

LocalCorrelationRatio::LocalCorrelationRatio(
    const LocalCorrelationRatioOptions& options)
    : options_(options) {
  CheckOptions("LocalCorrelationRatio", options.ratio);
  TORCH_CHECK_VALUE(options.window >= 1,
                    "LocalCorrelationRatio: wanted a positive window, got ",
                    options.window);
}

at::Tensor LocalCorrelationRatio::operator()(const at::Tensor& fixed,
                                             const at::Tensor& moving) const {
  const precision::Fp32Region region;
  const auto [f, m] = Prepare("LocalCorrelationRatio", fixed, moving,
                              options_.ratio.check_finite);
  const auto f_range = RangeOf(f, options_.ratio);
  const auto m_range = RangeOf(m, options_.ratio);
  const auto loss = [&](const at::Tensor& x, const at::Tensor& y) {
    return PatchLoss(
        "LocalCorrelationRatio", x, y, options_.window,
        [=, options = options_.ratio](const at::Tensor& x, const at::Tensor& y,
                                      const at::Tensor& inside) {
          return (PatchRatio(x, y, inside, m_range, options) +
                  PatchRatio(y, x, inside, f_range, options)) /
                 -2;
        });
  };
  std::vector<int64_t> shifts, axes;
  for (int64_t axis = 2; axis < f.dim(); ++axis) {
    shifts.push_back(-(options_.window / 2));
    axes.push_back(axis);
  }
  return (loss(f, m) +
          loss(at::roll(f, shifts, axes), at::roll(m, shifts, axes))) /
         2;
}

}  // namespace mir::losses
