#include "mir/losses/compat/ncc.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_trilinear3d.h>
#include <c10/util/Exception.h>

#include <utility>

#include "mir/losses/arguments.h"
#include "mir/losses/box_sum.h"
#include "mir/losses/window_correlation.h"
#include "mir/precision/fp32_region.h"

namespace mir::losses::compat {
namespace {

void CheckWindow(const char* loss, int64_t window) {
  TORCH_CHECK_VALUE(window > 0 && window % 2 == 1, loss,
                    ": wanted an odd window, got ", window);
}

void CheckEpsilon(const char* loss, double epsilon) {
  TORCH_CHECK_VALUE(epsilon > 0, loss, ": wanted a positive epsilon, got ",
                    epsilon);
}

std::vector<int64_t> Cube(const at::Tensor& image, int64_t window) {
  return std::vector<int64_t>(image.dim() - 2, window);
}

at::Tensor Loss(const char* loss, const at::Tensor& fixed,
                const at::Tensor& moving, std::vector<int64_t> window,
                const kernels::CorrelationFormula& formula) {
  WindowCorrelationOptions options;
  options.loss = loss;
  options.window = std::move(window);
  options.formula = formula;
  options.factor = -1;
  const precision::Fp32Region region;
  const at::ScalarType compute = CommonComputeType(fixed, moving);
  return MeanWindowCorrelation(fixed.to(compute), moving.to(compute), options);
}

// Half the size along each axis, corner to corner.
at::Tensor Halved(const at::Tensor& image) {
  std::vector<int64_t> sizes;
  for (int64_t axis = 2; axis < image.dim(); ++axis) {
    sizes.push_back(image.size(axis) / 2);
  }
  return image.dim() == 5
             ? at::upsample_trilinear3d(image, sizes, /*align_corners=*/true)
             : at::upsample_bilinear2d(image, sizes, /*align_corners=*/true);
}

at::Tensor Pooled(const at::Tensor& image, int64_t kernel) {
  const std::vector<int64_t> kernels = Cube(image, kernel);
  const std::vector<int64_t> strides = Cube(image, 2);
  const std::vector<int64_t> paddings = Cube(image, kernel / 2);
  return image.dim() == 5
             ? at::avg_pool3d(image, kernels, strides, paddings,
                              /*ceil_mode=*/false, /*count_include_pad=*/false)
             : at::avg_pool2d(image, kernels, strides, paddings,
                              /*ceil_mode=*/false,
                              /*count_include_pad=*/false);
}

}  // namespace

NccVxm::NccVxm(std::vector<int64_t> window) : window_(std::move(window)) {
  TORCH_CHECK_VALUE(
      window_.empty() || window_.size() == 2 || window_.size() == 3,
      "NccVxm: wanted a window for each of 2 or 3 axes, got ",
      at::IntArrayRef(window_));
  for (const int64_t width : window_) CheckWindow("NccVxm", width);
}

at::Tensor NccVxm::operator()(const at::Tensor& fixed,
                              const at::Tensor& moving) const {
  CheckImagePair("NccVxm", fixed, moving);
  kernels::CorrelationFormula formula;
  formula.add = 1e-5;
  return Loss("NccVxm", fixed, moving,
              window_.empty() ? Cube(fixed, 9) : window_, formula);
}

NccMok::NccMok(int64_t window, double epsilon)
    : window_(window), epsilon_(epsilon) {
  CheckWindow("NccMok", window);
  CheckEpsilon("NccMok", epsilon);
}

at::Tensor NccMok::operator()(const at::Tensor& fixed,
                              const at::Tensor& moving) const {
  CheckImagePair("NccMok", fixed, moving);
  kernels::CorrelationFormula formula;
  formula.add = epsilon_;
  return Loss("NccMok", fixed, moving, Cube(fixed, window_), formula);
}

Ncc::Ncc(int64_t window) : window_(window) { CheckWindow("Ncc", window); }

at::Tensor Ncc::operator()(const at::Tensor& fixed,
                           const at::Tensor& moving) const {
  CheckImagePair("Ncc", fixed, moving);
  kernels::CorrelationFormula formula;
  formula.per_voxel = true;
  formula.add = 1e-5;
  return Loss("Ncc", fixed, moving, Cube(fixed, window_), formula);
}

NccFp16::NccFp16(int64_t window, bool squared, double epsilon)
    : window_(window), squared_(squared), epsilon_(epsilon) {
  CheckWindow("NccFp16", window);
  CheckEpsilon("NccFp16", epsilon);
}

at::Tensor NccFp16::operator()(const at::Tensor& fixed,
                               const at::Tensor& moving) const {
  CheckImagePair("NccFp16", fixed, moving);
  kernels::CorrelationFormula formula;
  formula.per_voxel = true;
  formula.kind = squared_ ? kernels::CorrelationKind::kSquared
                          : kernels::CorrelationKind::kPlain;
  formula.add = epsilon_;
  return Loss("NccFp16", fixed, moving, Cube(fixed, window_), formula);
}

NccGauss::NccGauss(int64_t window, double sigma)
    : window_(window), sigma_(sigma) {
  CheckWindow("NccGauss", window);
  TORCH_CHECK_VALUE(sigma > 0, "NccGauss: wanted a positive sigma, got ",
                    sigma);
}

at::Tensor NccGauss::operator()(const at::Tensor& fixed,
                                const at::Tensor& moving) const {
  CheckImagePair("NccGauss", fixed, moving);
  WindowCorrelationOptions options;
  options.loss = "NccGauss";
  options.window = Cube(fixed, window_);
  options.taps.assign(options.window.size(), GaussianTaps(window_, sigma_));
  options.formula.per_voxel = true;
  options.formula.add = 1e-5;
  options.factor = -1;
  const precision::Fp32Region region;
  const at::ScalarType compute = CommonComputeType(fixed, moving);
  return MeanWindowCorrelation(fixed.to(compute), moving.to(compute), options);
}

FastNcc::FastNcc(int64_t window) : window_(window) {
  CheckWindow("FastNcc", window);
}

at::Tensor FastNcc::operator()(const at::Tensor& fixed,
                               const at::Tensor& moving) const {
  CheckImagePair("FastNcc", fixed, moving);
  kernels::CorrelationFormula formula;
  formula.divisor = window_;
  formula.add = 1e-5;
  return Loss("FastNcc", fixed, moving, Cube(fixed, window_), formula);
}

NccVfa::NccVfa(const NccVfaOptions& options) : options_(options) {
  CheckWindow("NccVfa", options.window);
  TORCH_CHECK_VALUE(
      options.scales > 0 && options.window - 2 * (options.scales - 1) > 0,
      "NccVfa: wanted at least one scale, and a window that is "
      "left at the coarsest one; got ",
      options.scales, " scales of a window of ", options.window);
  TORCH_CHECK_VALUE(options.kernel > 0 && options.kernel % 2 == 1,
                    "NccVfa: wanted an odd pooling kernel, got ",
                    options.kernel);
}

at::Tensor NccVfa::operator()(const at::Tensor& fixed,
                              const at::Tensor& moving) const {
  CheckImagePair("NccVfa", fixed, moving);
  const precision::Fp32Region region;
  const at::ScalarType compute = CommonComputeType(fixed, moving);
  at::Tensor f = fixed.to(compute);
  at::Tensor m = moving.to(compute);
  if (options_.half_resolution) {
    for (int64_t axis = 2; axis < f.dim(); ++axis) {
      TORCH_CHECK_VALUE(f.size(axis) >= 2,
                        "NccVfa: wanted images of at least 2 voxels along "
                        "each axis at half resolution, got ",
                        fixed.sizes());
    }
    f = Halved(f);
    m = Halved(m);
  }
  kernels::CorrelationFormula formula;
  formula.per_voxel = true;
  formula.smallest_den = 0x1p-23;
  at::Tensor sum;
  for (int64_t scale = 0; scale < options_.scales; ++scale) {
    if (scale > 0) {
      f = Pooled(f, options_.kernel);
      m = Pooled(m, options_.kernel);
    }
    const at::Tensor loss =
        Loss("NccVfa", f, m, Cube(f, options_.window - 2 * scale), formula);
    sum = sum.defined() ? sum + loss : loss;
  }
  return options_.scales == 1 ? sum : sum / options_.scales;
}

}  // namespace mir::losses::compat
