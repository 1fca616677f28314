#include "mir/geometry/fourier.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/fft_ifftn.h>
#include <ATen/ops/fft_irfft.h>
#include <ATen/ops/fft_irfftn.h>
#include <ATen/ops/fft_rfft.h>
#include <ATen/ops/fft_rfftn.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/real.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "mir/geometry/displacement_check.h"
#include "mir/geometry/finite_check.h"
#include "mir/precision/fp32_region.h"

namespace mir::geometry {
namespace {

// A coefficient is the amplitude of its wave.
constexpr char kAmplitudes[] = "forward";

at::Tensor Checked(const char* function, const at::Tensor& image) {
  TORCH_CHECK_VALUE(image.defined(), function, ": the input is undefined");
  TORCH_CHECK_VALUE(
      image.is_floating_point() && (image.dim() == 4 || image.dim() == 5) &&
          image.numel() > 0,
      function,
      ": wanted a floating tensor [N, C, D, H, W] or [N, C, H, W] with voxels, "
      "came ",
      image.sizes(), " of ", image.scalar_type());
  if (image.is_cpu()) CheckFinite(function, "input", image);
  return precision::ToComputeType(image);
}

std::vector<int64_t> SpatialAxes(const at::Tensor& image) {
  std::vector<int64_t> axes(image.dim() - 2);
  std::iota(axes.begin(), axes.end(), 2);
  return axes;
}

void CheckSizes(const char* function, const at::Tensor& image,
                at::IntArrayRef sizes) {
  TORCH_CHECK_VALUE(sizes.size() == image.dim() - 2 &&
                        std::all_of(sizes.begin(), sizes.end(),
                                    [](int64_t size) { return size > 0; }),
                    function, ": wanted ", image.dim() - 2,
                    " positive sizes, came ", sizes);
}

// The spectrum with the real part alone at `index`: what a real inverse reads
// of a frequency that is its own opposite, but cuFFT does not promise that.
at::Tensor RealAt(const at::Tensor& spectrum, int64_t axis, int64_t index) {
  const at::Tensor real = at::real(spectrum);
  at::Tensor keep = at::ones({spectrum.size(axis)}, real.options());
  keep[index].zero_();
  std::vector<int64_t> along(spectrum.dim(), 1);
  along[axis] = spectrum.size(axis);
  return at::complex(real, at::imag(spectrum) * keep.view(along));
}

at::Tensor ResizeAxis(const at::Tensor& values, int64_t axis, int64_t size) {
  const int64_t old_size = values.size(axis);
  if (size == old_size) return values;
  at::Tensor spectrum =
      at::fft_rfft(values, /*n=*/std::nullopt, axis, kAmplitudes);
  // The highest frequency of the smaller size, where that is even, stands for
  // itself and its opposite there, but for itself alone in the larger one.
  const int64_t smaller = std::min(size, old_size);
  if (smaller % 2 == 0) {
    const int64_t below = smaller / 2;
    std::vector<int64_t> along(values.dim(), 1);
    along[axis] = below + 1;
    at::Tensor weight = at::ones({below + 1}, values.options());
    weight[below].fill_(size < old_size ? 2.0 : 0.5);
    spectrum = spectrum.narrow(axis, 0, below + 1) * weight.view(along);
    if (size < old_size) spectrum = RealAt(spectrum, axis, below);
  }
  return at::fft_irfft(spectrum, size, axis, kAmplitudes);
}

at::Tensor Resize(const at::Tensor& image, at::IntArrayRef sizes) {
  at::Tensor resized = image;
  // Shrinking first leaves less to do for the others.
  std::vector<int64_t> axes = SpatialAxes(image);
  std::stable_sort(axes.begin(), axes.end(), [&](int64_t a, int64_t b) {
    return sizes[a - 2] * image.size(b) < sizes[b - 2] * image.size(a);
  });
  for (const int64_t axis : axes) {
    resized = ResizeAxis(resized, axis, sizes[axis - 2]);
  }
  return resized;
}

// The angles 2 pi k / size of the frequencies along a spatial axis of a real
// transform, as a tensor that broadcasts over its spectrum. In float64:
// float32's cosine of small angles is 1.
at::Tensor Angles(at::IntArrayRef sizes, size_t axis, c10::Device device) {
  const int64_t size = sizes[axis];
  const bool is_last = axis == sizes.size() - 1;
  at::Tensor frequency =
      at::arange(is_last ? size / 2 + 1 : size,
                 at::TensorOptions(at::kDouble).device(device));
  // Beyond the middle lie the negative ones.
  frequency = frequency - size * (frequency > size / 2).to(at::kDouble);
  std::vector<int64_t> shape(sizes.size(), 1);
  shape[axis] = frequency.size(0);
  return (frequency * (2 * std::acos(-1.0) / static_cast<double>(size)))
      .view(shape);
}

void CheckOperator(const char* function, const SobolevOperator& l) {
  TORCH_CHECK_VALUE(
      l.alpha >= 0 && std::isfinite(l.alpha) && l.gamma > 0 &&
          std::isfinite(l.gamma) && l.power >= 0 && std::isfinite(l.power),
      function, ": wanted alpha >= 0, gamma > 0 and power >= 0, came ", l.alpha,
      ", ", l.gamma, " and ", l.power);
}

at::Tensor ApplyPower(const char* function, const at::Tensor& field,
                      const SobolevOperator& l, double exponent) {
  CheckOperator(function, l);
  const at::Tensor values = Checked(function, field);
  return MultiplySpectrum(values, SobolevSymbol(values.sizes().slice(2), l,
                                                exponent, values.device()))
      .to(field.scalar_type());
}

// The rows of the spectrum along an axis of `size` that hold `count`
// frequencies from -(count / 2) on: those below 0 lie at its end.
at::Tensor Band(const at::Tensor& spectrum, int64_t axis, int64_t count) {
  const int64_t negative = count / 2;
  return at::cat(
      {spectrum.narrow(axis, spectrum.size(axis) - negative, negative),
       spectrum.narrow(axis, 0, count - negative)},
      axis);
}

// The inverse of Band: zeros between.
at::Tensor Unband(const at::Tensor& band, int64_t axis, int64_t size) {
  const int64_t count = band.size(axis);
  const int64_t negative = count / 2;
  std::vector<int64_t> between = band.sizes().vec();
  between[axis] = size - count;
  return at::cat(
      {band.narrow(axis, negative, count - negative),
       at::zeros(between, band.options()), band.narrow(axis, 0, negative)},
      axis);
}

}  // namespace

at::Tensor FourierResize(const at::Tensor& image, at::IntArrayRef sizes) {
  const precision::Fp32Region fp32;
  const at::Tensor values = Checked("FourierResize", image);
  CheckSizes("FourierResize", image, sizes);
  return Resize(values, sizes).to(image.scalar_type());
}

at::Tensor FourierResizeDisplacement(const at::Tensor& displacement,
                                     at::IntArrayRef sizes) {
  constexpr char kName[] = "FourierResizeDisplacement";
  CheckDisplacement(kName, "displacement", displacement);
  const precision::Fp32Region fp32;
  const at::Tensor field = Checked(kName, displacement);
  CheckSizes(kName, displacement, sizes);
  std::vector<double> ratio;
  std::vector<int64_t> shape(field.dim(), 1);
  shape[1] = field.size(1);
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    ratio.push_back(static_cast<double>(sizes[axis]) /
                    static_cast<double>(field.size(2 + axis)));
  }
  return Resize(field, sizes) * at::tensor(ratio, field.options()).view(shape);
}

at::Tensor GaussianSmooth(const at::Tensor& image,
                          c10::ArrayRef<double> sigma_voxels) {
  const precision::Fp32Region fp32;
  const at::Tensor values = Checked("GaussianSmooth", image);
  TORCH_CHECK_VALUE(
      sigma_voxels.size() == image.dim() - 2 &&
          std::all_of(sigma_voxels.begin(), sigma_voxels.end(),
                      [](double s) { return s >= 0 && std::isfinite(s); }),
      "GaussianSmooth: wanted ", image.dim() - 2,
      " numbers of at least 0 as sigma, came ", sigma_voxels);
  at::Tensor symbol;
  for (size_t axis = 0; axis < sigma_voxels.size(); ++axis) {
    const double sigma = sigma_voxels[axis];
    const at::Tensor part =
        (Angles(image.sizes().slice(2), axis, image.device()).square() *
         (-0.5 * sigma * sigma))
            .exp();
    symbol = symbol.defined() ? symbol * part : part;
  }
  return MultiplySpectrum(values, symbol).to(image.scalar_type());
}

at::Tensor ApplySobolev(const at::Tensor& field, const SobolevOperator& l) {
  return ApplyPower("ApplySobolev", field, l, /*exponent=*/1);
}

at::Tensor SobolevSmooth(const at::Tensor& field, const SobolevOperator& l) {
  return ApplyPower("SobolevSmooth", field, l, /*exponent=*/-1);
}

at::Tensor SobolevSymbol(at::IntArrayRef sizes, const SobolevOperator& l,
                         double exponent, c10::Device device) {
  CheckOperator("SobolevSymbol", l);
  TORCH_CHECK_VALUE((sizes.size() == 2 || sizes.size() == 3) &&
                        std::all_of(sizes.begin(), sizes.end(),
                                    [](int64_t size) { return size > 0; }),
                    "SobolevSymbol: wanted positive sizes (D, H, W) or (H, W), "
                    "came ",
                    sizes);
  at::Tensor symbol;
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    // 1 - cos, without cancellation.
    const at::Tensor part =
        (Angles(sizes, axis, device) * 0.5).sin().square() * (4 * l.alpha);
    symbol = symbol.defined() ? symbol + part : part + l.gamma;
  }
  return symbol.pow(exponent * l.power);
}

at::Tensor MultiplySpectrum(const at::Tensor& field, const at::Tensor& symbol) {
  TORCH_CHECK_VALUE(field.defined() && symbol.defined() &&
                        field.is_floating_point() &&
                        field.dim() == symbol.dim() + 2 &&
                        symbol.size(-1) == field.size(-1) / 2 + 1,
                    "MultiplySpectrum: wanted a floating field and a symbol of "
                    "its spectrum");
  const precision::Fp32Region fp32;
  const at::Tensor values = precision::ToComputeType(field);
  const std::vector<int64_t> axes = SpatialAxes(values);
  const at::Tensor spectrum =
      at::fft_rfftn(values, /*s=*/std::nullopt, axes, kAmplitudes);
  return at::fft_irfftn(spectrum * symbol.to(values.scalar_type()),
                        values.sizes().slice(2), axes, kAmplitudes);
}

at::Tensor SpectralConvolution(const at::Tensor& input,
                               const at::Tensor& weight) {
  constexpr char kName[] = "SpectralConvolution";
  const precision::Fp32Region fp32;
  const at::Tensor values = Checked(kName, input);
  const std::vector<int64_t> axes = SpatialAxes(values);
  const int64_t last = axes.back();
  TORCH_CHECK_VALUE(weight.defined(), kName, ": the weight is undefined");
  TORCH_CHECK_VALUE(
      weight.is_floating_point() && weight.dim() == input.dim() + 1 &&
          weight.size(0) == input.size(1) && weight.size(-1) == 2,
      kName,
      ": wanted a floating weight [C, O, modes..., 2] for "
      "an input ",
      input.sizes(), ", came ", weight.sizes(), " of ", weight.scalar_type());
  TORCH_CHECK_VALUE(weight.device() == input.device(), kName,
                    ": wanted the weight on ", input.device(), ", came one on ",
                    weight.device());
  for (const int64_t axis : axes) {
    const int64_t there =
        axis == last ? input.size(axis) / 2 + 1 : input.size(axis);
    TORCH_CHECK_VALUE(weight.size(axis) >= 1 && weight.size(axis) <= there,
                      kName, ": wanted 1 to ", there,
                      " frequencies along axis ", axis, ", came ",
                      weight.size(axis));
  }
  at::Tensor band = at::fft_rfftn(values, /*s=*/std::nullopt, axes, kAmplitudes)
                        .narrow(last, 0, weight.size(last));
  for (const int64_t axis : axes) {
    if (axis != last) band = Band(band, axis, weight.size(axis));
  }
  const at::Tensor matrices =
      at::view_as_complex(weight.to(values.scalar_type()).contiguous());
  // Products and sums instead of a matrix product, whose gradient could use
  // TF32.
  at::Tensor mixed;
  for (int64_t c = 0; c < input.size(1); ++c) {
    const at::Tensor part =
        band.select(/*dim=*/1, c).unsqueeze(1) * matrices[c];
    mixed = mixed.defined() ? mixed + part : part;
  }
  for (const int64_t axis : axes) {
    if (axis != last) mixed = Unband(mixed, axis, values.size(axis));
  }
  const std::vector<int64_t> others(axes.begin(), axes.end() - 1);
  mixed = at::fft_ifftn(mixed, /*s=*/std::nullopt, others, kAmplitudes);
  mixed = RealAt(mixed, last, 0);
  const int64_t size = values.size(last);
  if (size % 2 == 0 && mixed.size(last) > size / 2) {
    mixed = RealAt(mixed, last, size / 2);
  }
  // Pads with zeros.
  return at::fft_irfft(mixed, size, last, kAmplitudes).to(input.scalar_type());
}

}  // namespace mir::geometry
