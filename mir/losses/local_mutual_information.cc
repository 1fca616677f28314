#include "mir/losses/local_mutual_information.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/linspace.h>
#include <c10/util/Exception.h>

#include <tuple>

#include "mir/losses/arguments.h"
#include "mir/losses/patch_loss.h"
#include "mir/precision/fp32_region.h"

namespace mir::losses {
namespace {

constexpr char kName[] = "LocalMutualInformation";

struct Bins {
  at::Tensor centres;
  double low = 0, high = 1;
  double per_intensity = 1;  // Bins in a unit of intensity.
  double exponent = 1;       // What a squared distance in bins counts.
};

Bins BinsFor(const at::Tensor& image,
             const LocalMutualInformationOptions& options) {
  Bins bins;
  std::tie(bins.low, bins.high) =
      options.range.has_value() ? *options.range : IntensityRange(image);
  bins.centres =
      at::linspace(bins.low, bins.high, options.bins, image.options());
  bins.per_intensity = (options.bins - 1) / (bins.high - bins.low);
  bins.exponent = -1 / (2 * options.sigma * options.sigma);
  return bins;
}

// [P, n, bins]
at::Tensor WeightsOf(const at::Tensor& patches, const Bins& bins) {
  const at::Tensor distance =
      (patches.clamp(bins.low, bins.high).unsqueeze(2) - bins.centres) *
      bins.per_intensity;
  return (distance.square() * bins.exponent).softmax(2);
}

}  // namespace

LocalMutualInformation::LocalMutualInformation(
    const LocalMutualInformationOptions& options)
    : options_(options) {
  TORCH_CHECK_VALUE(options.bins >= 2 && options.bins <= 256, kName,
                    ": wanted from 2 to 256 bins, got ", options.bins);
  TORCH_CHECK_VALUE(options.sigma >= 0.25 && options.sigma <= 16, kName,
                    ": wanted a sigma of 0.25 to 16 bins, got ", options.sigma);
  TORCH_CHECK_VALUE(options.patch >= 1, kName,
                    ": wanted a positive patch, got ", options.patch);
  TORCH_CHECK_VALUE(!options.range.has_value() ||
                        options.range->first < options.range->second,
                    kName, ": wanted a range that is not empty");
}

at::Tensor LocalMutualInformation::operator()(const at::Tensor& fixed,
                                              const at::Tensor& moving) const {
  CheckImagePair(kName, fixed, moving);
  const precision::Fp32Region region;
  const at::ScalarType compute = CommonComputeType(fixed, moving);
  const at::Tensor f = fixed.to(compute), m = moving.to(compute);
  CheckFiniteIf(options_.check_finite, kName, "fixed", f);
  CheckFiniteIf(options_.check_finite, kName, "moving", m);
  const Bins f_bins = BinsFor(f, options_), m_bins = BinsFor(m, options_);
  return PatchLoss(
      kName, f, m, options_.patch,
      [=, as_mir = options_.as_mir](const at::Tensor& x, const at::Tensor& y,
                                    const at::Tensor& inside) {
        at::Tensor x_weights = WeightsOf(x, f_bins);
        at::Tensor y_weights = WeightsOf(y, m_bins);
        if (as_mir) {
          x_weights = x_weights / x.size(1);
          const at::Tensor joint =
              at::bmm(x_weights.transpose(1, 2), y_weights);
          const at::Tensor apart =
              x_weights.sum(1).unsqueeze(2) * y_weights.mean(1).unsqueeze(1) +
              1e-6;
          return -(joint * (joint / apart + 1e-6).log()).sum({1, 2});
        }
        const at::Tensor share =
            (inside / inside.sum(1, /*keepdim=*/true)).unsqueeze(2);
        x_weights = x_weights * share;
        const at::Tensor joint = at::bmm(x_weights.transpose(1, 2), y_weights);
        const at::Tensor apart = x_weights.sum(1).unsqueeze(2) *
                                 (y_weights * share).sum(1).unsqueeze(1);
        constexpr double kTiny = 1e-9;
        return (joint * ((apart + kTiny) / (joint + kTiny)).log()).sum({1, 2});
      });
}

}  // namespace mir::losses
