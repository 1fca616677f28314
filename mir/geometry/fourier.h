#ifndef MIR_GEOMETRY_FOURIER_H_
#define MIR_GEOMETRY_FOURIER_H_

#include <ATen/core/ATen_fwd.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

namespace mir::geometry {

// Layers in the Fourier domain, by real transforms over the spatial axes. All
// take
//
//   [N, C, D, H, W] or [N, C, H, W]  float16, bfloat16, float32 or float64, of
//                                    any sizes (no powers of two), on the CPU
//                                    or CUDA
//
// and see it as one period of a periodic function. They compute in float32
// (float64 for float64), under autocast too, are differentiable any number of
// times and thread-safe. They throw c10::ValueError if an argument is not as
// said, and, on the CPU, if the input is not finite: one NaN would become all.

// Resizes by cropping or padding the spectrum, axis by axis: trigonometric
// interpolation. Along an axis voxel v of the result lies at v * size /
// new_size of the input. What has fewer than new_size / 2 periods along each
// axis survives shrinking, and enlarging changes no voxel that stays; a part of
// exactly new_size / 2 periods keeps its cosine. The band-limited
// representation of Fourier-Net (Jia et al., AAAI 2023), without its centring
// shifts, and scipy.signal.resample.
//
//   sizes    the new spatial sizes, each at least 1
//   returns  [N, C, sizes...]  dtype of `image`
at::Tensor FourierResize(const at::Tensor& image, at::IntArrayRef sizes);

// FourierResize of a displacement [N, 3, D, H, W] or [N, 2, H, W] in voxels,
// whose vectors are rescaled as by ResizeDisplacement: channel k is multiplied
// by the new size over the old one along axis k. Fourier-Net's decoder up, its
// encoder's target down. Returns float64 for float64, else float32.
at::Tensor FourierResizeDisplacement(const at::Tensor& displacement,
                                     at::IntArrayRef sizes);

// Smooths with a periodic Gaussian: a wave of k periods is multiplied by
// exp(-(2 pi k sigma / size)^2 / 2), which keeps the mean.
//
//   sigma_voxels  one per axis, at least 0 (0 leaves an axis as it is)
//   returns       shape and dtype of `image`
at::Tensor GaussianSmooth(const at::Tensor& image,
                          c10::ArrayRef<double> sigma_voxels);

// The operator L = (gamma - alpha Laplacian)^power, where the Laplacian is that
// of differences between neighbouring voxels: a wave of k periods is multiplied
// by (gamma + 2 alpha sum_axes (1 - cos(2 pi k / size)))^power. L measures
// velocities in LDDMM (Beg et al., IJCV 2005); its inverse smooths.
struct SobolevOperator {
  double alpha = 1;  // At least 0, in voxels^2.
  double gamma = 1;  // Above 0.
  double power = 2;  // At least 0.
};

// L applied to every channel. Shape and dtype of `field`.
at::Tensor ApplySobolev(const at::Tensor& field, const SobolevOperator& l);

// Its inverse K, likewise: Sobolev smoothing, and with power 1 the gradient of
// an H1 norm. A gamma of 1 keeps the mean.
at::Tensor SobolevSmooth(const at::Tensor& field, const SobolevOperator& l);

// What both multiply by, for inputs of these spatial sizes: the symbol of L to
// the power `exponent` (1: L, -1: K), in float64 on `device`; and the
// multiplication itself, by any symbol that is real and the same for opposite
// frequencies: [D, H, W / 2 + 1], in the order of rfftn. For loops that apply
// one operator many times. MultiplySpectrum does not look whether the input is
// finite, and returns float64 for float64, else float32.
at::Tensor SobolevSymbol(at::IntArrayRef sizes, const SobolevOperator& l,
                         double exponent, c10::Device device);
at::Tensor MultiplySpectrum(const at::Tensor& field, const at::Tensor& symbol);

// A spectral convolution, as in the Fourier neural operator (Li et al., ICLR
// 2021): mixes the channels of each low frequency by a matrix of its own, and
// leaves out the others.
//
//   input    [N, C, D, H, W] or [N, C, H, W]
//   weight   [C, O, m_d, m_h, m_w, 2] or [C, O, m_h, m_w, 2], floating, of the
//            input's device: real and imaginary parts, for the frequencies
//            -(m / 2), ..., (m - 1) / 2 along an axis (rounded towards zero)
//            and 0, ..., m_w - 1 along the last; no m may exceed the
//            frequencies that the input has (its size, and size / 2 + 1 along
//            the last)
//   returns  [N, O, D, H, W] or [N, O, H, W]  dtype of `input`
//
// Coefficients are amplitudes (divided by the number of voxels), so that the
// same weights do the same to the same function on a finer grid. Of a frequency
// that is its own opposite, such as 0, the result keeps the real part.
at::Tensor SpectralConvolution(const at::Tensor& input,
                               const at::Tensor& weight);

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_FOURIER_H_
