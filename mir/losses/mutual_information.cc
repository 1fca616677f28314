#include "mir/losses/mutual_information.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <tuple>

#include "mir/losses/arguments.h"
#include "mir/losses/parzen.h"
#include "mir/precision/fp32_region.h"

namespace mir::losses {
namespace {

// Bins that hold less count nothing.
constexpr double kTiny = 1e-9;

void CheckOptions(const char* loss, const MutualInformationOptions& options) {
  TORCH_CHECK_VALUE(options.bins >= 4 && options.bins <= 256, loss,
                    ": wanted from 4 to 256 bins, got ", options.bins);
  TORCH_CHECK_VALUE(options.sigma >= 0.5 && options.sigma <= 16, loss,
                    ": wanted a sigma of 0.5 to 16 bins, got ", options.sigma);
  TORCH_CHECK_VALUE(!options.range.has_value() ||
                        options.range->first < options.range->second,
                    loss, ": wanted a range that is not empty, got ",
                    options.range.value_or(std::make_pair(0.0, 0.0)).first,
                    " to ",
                    options.range.value_or(std::make_pair(0.0, 0.0)).second);
}

ParzenWindow WindowFor(const at::Tensor& image,
                       const MutualInformationOptions& options) {
  double low = 0, high = 1;
  if (options.range.has_value()) {
    low = options.range->first;
    high = options.range->second;
  } else {
    std::tie(low, high) = IntensityRange(image);
  }
  if (options.kind == ParzenKind::kGaussian) {
    return GaussianWindow(options.bins, low, high, options.sigma,
                          /*normalized=*/true, /*clamp_low=*/low);
  }
  // One bin beyond each end, so that splines are whole.
  const double width = (high - low) / (options.bins - 3);
  ParzenWindow window =
      CubicSplineWindow(options.bins, low - width, high + width);
  window.cells.low = low;
  window.cells.high = high;
  return window;
}

at::Tensor Loss(const char* loss, const at::Tensor& fixed,
                const at::Tensor& moving, const at::Tensor* weight,
                const MutualInformationOptions& options,
                const HistogramLoss& of) {
  CheckImagePair(loss, fixed, moving);
  if (weight != nullptr) CheckWeight(loss, *weight, fixed);
  const precision::Fp32Region region;
  const at::ScalarType compute = CommonComputeType(fixed, moving);
  at::Tensor f = fixed.to(compute), m = moving.to(compute);
  if (weight != nullptr) {
    // What does not count may hold anything; the mean of the rest keeps the
    // range.
    const at::Tensor counts = (*weight != 0).expand_as(f);
    const at::Tensor nothing = counts.logical_not();
    const at::Tensor count = counts.sum().clamp_min(1);
    for (at::Tensor* image : {&f, &m}) {
      const at::Tensor rest = image->detach().masked_fill(nothing, 0);
      *image = image->masked_fill(
          nothing, (rest.sum() / count).to(image->scalar_type()));
    }
  }
  CheckFiniteIf(options.check_finite, loss, "fixed", f);
  CheckFiniteIf(options.check_finite, loss, "moving", m);
  return ParzenLoss(loss, f, m, weight ? *weight : at::Tensor(),
                    WindowFor(f, options), WindowFor(m, options), of);
}

at::Tensor NegativeInformation(const Histogram& histogram,
                               const at::Tensor& total) {
  const at::Tensor one = total.view({-1, 1, 1});
  const at::Tensor joint = histogram.joint / one;
  const at::Tensor apart =
      (histogram.x.unsqueeze(2) / one) * (histogram.y.unsqueeze(1) / one);
  return (joint * ((apart + kTiny) / (joint + kTiny)).log()).sum({1, 2}).mean();
}

at::Tensor Entropy(const at::Tensor& shares) {
  return -(shares * (shares + kTiny).log()).flatten(1).sum(1);
}

at::Tensor NegativeNormalized(const Histogram& histogram,
                              const at::Tensor& total) {
  const at::Tensor one = total.unsqueeze(1);
  const at::Tensor apart =
      Entropy(histogram.x / one) + Entropy(histogram.y / one);
  const at::Tensor joint = Entropy(histogram.joint / one.unsqueeze(2));
  // Of constants all entropies are 0.
  constexpr double kLeast = 1e-5;
  return -((apart + kLeast) / (joint + kLeast)).mean();
}

}  // namespace

MutualInformation::MutualInformation(const MutualInformationOptions& options)
    : options_(options) {
  CheckOptions("MutualInformation", options);
}

at::Tensor MutualInformation::operator()(const at::Tensor& fixed,
                                         const at::Tensor& moving) const {
  return Loss("MutualInformation", fixed, moving, nullptr, options_,
              NegativeInformation);
}

at::Tensor MutualInformation::operator()(const at::Tensor& fixed,
                                         const at::Tensor& moving,
                                         const at::Tensor& weight) const {
  return Loss("MutualInformation", fixed, moving, &weight, options_,
              NegativeInformation);
}

NormalizedMutualInformation::NormalizedMutualInformation(
    const MutualInformationOptions& options)
    : options_(options) {
  CheckOptions("NormalizedMutualInformation", options);
}

at::Tensor NormalizedMutualInformation::operator()(
    const at::Tensor& fixed, const at::Tensor& moving) const {
  return Loss("NormalizedMutualInformation", fixed, moving, nullptr, options_,
              NegativeNormalized);
}

at::Tensor NormalizedMutualInformation::operator()(
    const at::Tensor& fixed, const at::Tensor& moving,
    const at::Tensor& weight) const {
  return Loss("NormalizedMutualInformation", fixed, moving, &weight, options_,
              NegativeNormalized);
}

}  // namespace mir::losses
