#ifndef MIR_LOSSES_PARZEN_H_
#define MIR_LOSSES_PARZEN_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "mir/losses/kernels/parzen.h"

namespace mir::losses {

// How much each of `bins` bins weighs an intensity: in each cell a polynomial
// of the offset from its middle.
struct ParzenWindow {
  int64_t bins = 0;
  int order = 0;  // The polynomials' number of coefficients.
  kernels::ParzenCells cells;
  at::Tensor coefficients;  // [cells, order, bins], float64, on the CPU.
};

// Gaussians of `sigma` bins about `bins` centres from `low` to `high`,
// exp(-d^2 / (2 sigma^2)). Where `normalized` each intensity's weights add up
// to 1, and intensities are clamped to [clamp_low, high]; otherwise those
// beyond have the tails of the Gaussians. Polynomials of degree 7 in cells of
// at most sigma: off by less than 1e-7.
ParzenWindow GaussianWindow(int64_t bins, double low, double high, double sigma,
                            bool normalized, double clamp_low);

// Cubic B-splines (Unser, 1999), and hat functions, about such centres. Clamped
// to [low, high]; at the ends splines are cut off, not normalised. Exact. The
// slope of a hat at its kinks is the sum of those to both sides.
ParzenWindow CubicSplineWindow(int64_t bins, double low, double high);
ParzenWindow HatWindow(int64_t bins, double low, double high);

// Two bins that weigh an intensity v by 1 and v - centre, whatever it is.
ParzenWindow ValueWindow(double centre);

// Sums over voxels, float64, of the products of both images' weights and of
// each one's own.
struct Histogram {
  at::Tensor joint;  // [N, bins of x, bins of y]
  at::Tensor x;      // [N, bins of x]
  at::Tensor y;      // [N, bins of y]
};

// Sums of products of powers [N, cells of x, cells of y, order, order],
// float64, of images of one shape, contiguous, both float32 or both float64, on
// the CPU; a weight of the same kind, or undefined. Then the histograms that
// follow, differentiably in these sums.
at::Tensor ParzenMoments(const at::Tensor& x, const at::Tensor& y,
                         const at::Tensor& weight, const ParzenWindow& x_window,
                         const ParzenWindow& y_window);
Histogram HistogramOf(const at::Tensor& moments, const ParzenWindow& x_window,
                      const ParzenWindow& y_window);

// The coefficients of the derivative by an offset of what has `gradient` by the
// moments, per intensity of x or y: of the moments' shape.
at::Tensor SlopeTable(const at::Tensor& gradient, const ParzenWindow& x_window,
                      const ParzenWindow& y_window, bool by_x);

// Writes the derivative by x or y that a SlopeTable gives to `out`, or adds it.
void WriteSlopes(const at::Tensor& x, const at::Tensor& y,
                 const at::Tensor& weight, const ParzenWindow& x_window,
                 const ParzenWindow& y_window, const at::Tensor& table,
                 bool by_x, bool add, const at::Tensor& out);

// The same histograms by LibTorch's operators, on any device and differentiable
// any number of times; at the kinks of hats the slope is the right one's.
Histogram HistogramByOperators(const at::Tensor& x, const at::Tensor& y,
                               const at::Tensor& weight,
                               const ParzenWindow& x_window,
                               const ParzenWindow& y_window);

// A scalar, float64, of histograms and of each sample's sum of weights [N].
using HistogramLoss = std::function<at::Tensor(const Histogram& histogram,
                                               const at::Tensor& total)>;

// `of` the images' histograms, as a scalar of their dtype: on the CPU in two
// passes over the voxels, differentiable once. Images of one shape and dtype;
// the weight passes CheckWeight, or is undefined.
at::Tensor ParzenLoss(const char* loss, const at::Tensor& x,
                      const at::Tensor& y, const at::Tensor& weight,
                      const ParzenWindow& x_window,
                      const ParzenWindow& y_window, const HistogramLoss& of);

}  // namespace mir::losses

#endif  // MIR_LOSSES_PARZEN_H_
