#include "mir/losses/compat/mutual_information.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "mir/losses/arguments.h"
#include "mir/losses/parzen.h"
#include "mir/precision/fp32_region.h"

namespace mir::losses::compat {
namespace {

void CheckRange(const char* loss, int64_t num_bin, double minval,
                double maxval) {
  TORCH_CHECK_VALUE(num_bin >= 2 && num_bin <= 256 && minval < maxval, loss,
                    ": wanted from 2 to 256 bins and a range that is not "
                    "empty, got ",
                    num_bin, " bins from ", minval, " to ", maxval);
}

at::Tensor Loss(const char* loss, const at::Tensor& fixed,
                const at::Tensor& moving, const ParzenWindow& fixed_window,
                const ParzenWindow& moving_window, const HistogramLoss& of) {
  CheckImagePair(loss, fixed, moving);
  const precision::Fp32Region region;
  const at::ScalarType compute = CommonComputeType(fixed, moving);
  const at::Tensor f = fixed.to(compute), m = moving.to(compute);
  CheckFiniteIf(false, loss, "fixed", f);
  CheckFiniteIf(false, loss, "moving", m);
  return ParzenLoss(loss, f, m, at::Tensor(), fixed_window, moving_window, of);
}

}  // namespace

MutualInformation::MutualInformation(double sigma_ratio, double minval,
                                     double maxval, int64_t num_bin)
    : sigma_ratio_(sigma_ratio),
      minval_(minval),
      maxval_(maxval),
      num_bin_(num_bin) {
  CheckRange("MutualInformation", num_bin, minval, maxval);
  TORCH_CHECK_VALUE(minval <= 0 && maxval > 0,
                    "MutualInformation: wanted a range about 0, since "
                    "intensities are clamped to [0, maxval]; got ",
                    minval, " to ", maxval);
  TORCH_CHECK_VALUE(sigma_ratio >= 0.5 && sigma_ratio <= 16,
                    "MutualInformation: wanted a sigma_ratio of 0.5 to 16, "
                    "got ",
                    sigma_ratio);
}

at::Tensor MutualInformation::operator()(const at::Tensor& fixed,
                                         const at::Tensor& moving) const {
  const ParzenWindow window =
      GaussianWindow(num_bin_, minval_, maxval_, sigma_ratio_,
                     /*normalized=*/true, /*clamp_low=*/0);
  return Loss(
      "MutualInformation", fixed, moving, window, window,
      [](const Histogram& histogram, const at::Tensor& total) {
        const at::Tensor one = total.view({-1, 1, 1});
        const at::Tensor joint = histogram.joint / one;
        const at::Tensor apart = (histogram.x.unsqueeze(2) / one) *
                                     (histogram.y.unsqueeze(1) / one) +
                                 1e-6;
        return -(joint * (joint / apart + 1e-6).log()).sum({1, 2}).mean();
      });
}

MattesMutualInformation::MattesMutualInformation(int64_t num_bin, double minval,
                                                 double maxval, double eps)
    : num_bin_(num_bin), minval_(minval), maxval_(maxval), eps_(eps) {
  CheckRange("MattesMutualInformation", num_bin, minval, maxval);
  TORCH_CHECK_VALUE(
      eps > 0, "MattesMutualInformation: wanted a positive eps, got ", eps);
}

at::Tensor MattesMutualInformation::operator()(const at::Tensor& fixed,
                                               const at::Tensor& moving) const {
  return Loss(
      "MattesMutualInformation", fixed, moving,
      CubicSplineWindow(num_bin_, minval_, maxval_),
      HatWindow(num_bin_, minval_, maxval_),
      [eps = eps_](const Histogram& histogram, const at::Tensor& total) {
        const at::Tensor one = total.view({-1, 1, 1});
        const at::Tensor joint = histogram.joint / (one + eps);
        const at::Tensor apart = (histogram.x.unsqueeze(2) / one) *
                                     (histogram.y.unsqueeze(1) / one) +
                                 eps;
        return -(joint * ((joint + eps) / apart).log()).sum({1, 2}).mean();
      });
}

NormalizedMutualInformation::NormalizedMutualInformation(int64_t num_bin,
                                                         double minval,
                                                         double maxval,
                                                         double eps)
    : num_bin_(num_bin), minval_(minval), maxval_(maxval), eps_(eps) {
  CheckRange("NormalizedMutualInformation", num_bin, minval, maxval);
  TORCH_CHECK_VALUE(
      eps > 0, "NormalizedMutualInformation: wanted a positive eps, got ", eps);
}

at::Tensor NormalizedMutualInformation::operator()(
    const at::Tensor& fixed, const at::Tensor& moving) const {
  return Loss(
      "NormalizedMutualInformation", fixed, moving,
      CubicSplineWindow(num_bin_, minval_, maxval_),
      HatWindow(num_bin_, minval_, maxval_),
      [eps = eps_](const Histogram& histogram, const at::Tensor& total) {
        const at::Tensor one = total.unsqueeze(1);
        const at::Tensor joint = histogram.joint / (one.unsqueeze(2) + eps);
        const at::Tensor x = histogram.x / one + eps;
        const at::Tensor y = histogram.y / one + eps;
        const at::Tensor apart = -(x * x.log()).sum(1) - (y * y.log()).sum(1);
        const at::Tensor together = -(joint * (joint + eps).log()).sum({1, 2});
        return -(apart / (together + eps)).mean();
      });
}

}  // namespace mir::losses::compat
