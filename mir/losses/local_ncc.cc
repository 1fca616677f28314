#include "mir/losses/local_ncc.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool3d.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <vector>

#include "mir/losses/arguments.h"
#include "mir/losses/box_sum.h"
#include "mir/losses/window_correlation.h"
#include "mir/precision/fp32_region.h"

namespace mir::losses {

namespace {

constexpr char kName[] = "LocalNcc";

at::Tensor Halved(const at::Tensor& image) {
  std::vector<int64_t> kernel;
  for (int64_t axis = 2; axis < image.dim(); ++axis) {
    kernel.push_back(std::min<int64_t>(2, image.size(axis)));
  }
  const std::vector<int64_t> none(kernel.size(), 0);
  return image.dim() == 5
             ? at::avg_pool3d(image, kernel, kernel, none, /*ceil_mode=*/true,
                              /*count_include_pad=*/false)
             : at::avg_pool2d(image, kernel, kernel, none, /*ceil_mode=*/true,
                              /*count_include_pad=*/false);
}

// The mean correlation of the windows whose middle is within the mask, of their
// voxels within it. Images are 0 outside.
at::Tensor MaskedMean(const at::Tensor& fixed, const at::Tensor& moving,
                      const at::Tensor& mask,
                      const WindowCorrelationOptions& options) {
  const at::Tensor m = mask.to(at::kDouble).expand_as(fixed);
  std::vector<int64_t> radii, spatial;
  for (const int64_t width : options.window) radii.push_back(width / 2);
  for (int64_t axis = 2; axis < fixed.dim(); ++axis) spatial.push_back(axis);
  const auto sums = [&](const at::Tensor& image) {
    return options.taps.empty() ? BoxSum(image, radii)
                                : WindowSum(image, options.taps);
  };
  const at::Tensor inside = m.sum(spatial, /*keepdim=*/true).clamp_min(1);
  const at::Tensor inverse_n =
      m / sums(m).masked_fill(m == 0, 1);  // 0 outside.
  at::Tensor images[] = {fixed.to(at::kDouble), moving.to(at::kDouble)};
  at::Tensor floors[2];
  at::Tensor counted = m;
  for (int which = 0; which < 2; ++which) {
    const at::Tensor mean =
        images[which].detach().sum(spatial, /*keepdim=*/true) / inside;
    images[which] = (images[which] - mean) * m;
    const at::Tensor variance =
        images[which].square().sum(spatial, /*keepdim=*/true) / inside;
    // Less is the rounding of float32.
    const at::Tensor varies = variance.detach() > 1e-12 * mean.square();
    floors[which] = (options.relative_floor * variance)
                        .masked_fill(varies.logical_not(), 1);
    counted = counted * varies;
  }
  const at::Tensor mean_x = sums(images[0]) * inverse_n;
  const at::Tensor mean_y = sums(images[1]) * inverse_n;
  const at::Tensor cov =
      sums(images[0] * images[1]) * inverse_n - mean_x * mean_y;
  const auto variance = [&](int which, const at::Tensor& mean) {
    return (sums(images[which].square()) * inverse_n - mean.square())
               .clamp_min(0) +
           floors[which];
  };
  const at::Tensor value =
      cov.square() / (variance(0, mean_x) * variance(1, mean_y)) * counted;
  return (options.factor * (value.sum() / m.sum().clamp_min(1)))
      .to(fixed.scalar_type());
}

}  // namespace

LocalNcc::LocalNcc(const LocalNccOptions& options) : options_(options) {
  TORCH_CHECK_VALUE(options.window > 0 && options.window % 2 == 1,
                    "LocalNcc: wanted an odd window, got ", options.window);
  TORCH_CHECK_VALUE(options.epsilon >= 1e-8 && options.epsilon <= 1,
                    "LocalNcc: wanted an epsilon from 1e-8 to 1, got ",
                    options.epsilon);
  TORCH_CHECK_VALUE(options.sigma >= 0 && options.scales > 0,
                    "LocalNcc: wanted a sigma of at least 0 and at least one "
                    "scale, got ",
                    options.sigma, " and ", options.scales);
}

at::Tensor LocalNcc::operator()(const at::Tensor& fixed,
                                const at::Tensor& moving) const {
  CheckImagePair(kName, fixed, moving);
  return Loss(fixed, moving, at::Tensor(), /*masked=*/false);
}

at::Tensor LocalNcc::operator()(const at::Tensor& fixed,
                                const at::Tensor& moving,
                                const at::Tensor& weight) const {
  CheckImagePair(kName, fixed, moving);
  CheckWeight(kName, weight, fixed);
  return Loss(fixed, moving, weight, /*masked=*/false);
}

at::Tensor LocalNcc::Masked(const at::Tensor& fixed, const at::Tensor& moving,
                            const at::Tensor& mask) const {
  CheckImagePair(kName, fixed, moving);
  CheckWeight(kName, mask, fixed);
  return Loss(fixed, moving, (mask != 0).to(at::kFloat), /*masked=*/true);
}

at::Tensor LocalNcc::Loss(const at::Tensor& fixed, const at::Tensor& moving,
                          const at::Tensor& weight, bool masked) const {
  const precision::Fp32Region region;
  WindowCorrelationOptions options;
  options.loss = kName;
  options.window.assign(fixed.dim() - 2, options_.window);
  if (options_.sigma > 0) {
    options.taps.assign(fixed.dim() - 2,
                        GaussianTaps(options_.window, options_.sigma));
  }
  options.formula.clip_window = true;
  options.formula.per_voxel = true;
  options.formula.smallest_variance = 0;
  options.relative_floor = options_.epsilon;
  options.factor = -1;
  options.check_finite = options_.check_finite;
  const at::ScalarType compute = CommonComputeType(fixed, moving);
  at::Tensor f = fixed.to(compute), m = moving.to(compute);
  at::Tensor w = weight.defined() ? weight.to(compute) : weight;
  if (masked) {
    const at::Tensor outside = w == 0;
    f = f.masked_fill(outside, 0);
    m = m.masked_fill(outside, 0);
    CheckFiniteIf(options_.check_finite, kName, "fixed", f);
    CheckFiniteIf(options_.check_finite, kName, "moving", m);
  }
  at::Tensor sum;
  int64_t scale = 0;
  for (; scale < options_.scales; ++scale) {
    if (scale > 0) {
      if (f.numel() == f.size(0) * f.size(1)) break;
      if (masked) {
        // The mean of the voxels within the mask.
        const at::Tensor share = Halved(w);
        const at::Tensor whole = share.masked_fill(share == 0, 1);
        f = Halved(f) / whole;
        m = Halved(m) / whole;
        w = (share > 0).to(compute);
      } else {
        f = Halved(f);
        m = Halved(m);
        if (w.defined()) w = Halved(w);
      }
    }
    const at::Tensor own = masked ? MaskedMean(f, m, w, options)
                                  : MeanWindowCorrelation(f, m, w, options);
    sum = sum.defined() ? sum + own : own;
  }
  return scale == 1 ? sum : sum / scale;
}

}  // namespace mir::losses
