#ifndef MIR_LOSSES_KERNELS_WINDOW_CORRELATION_H_
#define MIR_LOSSES_KERNELS_WINDOW_CORRELATION_H_

#include <array>
#include <cstdint>
#include <vector>

namespace mir::losses::kernels {

// How the correlation of two images in one window follows from its sums.
//
// With sums S over the window, n its number of voxels (or `divisor`) and
// s = 1/n (or 1, see `per_voxel`):
//
//   cov   = s (S(xy) - S(x) S(y) / n)
//   var_x = s (S(xx) - S(x) S(x) / n), at least `smallest_variance`; so var_y
//   den   = max((var_x + floor_x) (var_y + floor_y) + add, smallest_den)
//   value = cov^2 / den, or cov / sqrt(den), or structural similarity,
//           (2 mu_x mu_y + c1) (2 cov + c2)
//           / ((mu_x^2 + mu_y^2 + c1) (var_x + var_y + c2))  with mu = S / n
//
// Where the window has weights, sums are weighted and n is their sum.
enum class CorrelationKind { kSquared, kPlain, kStructural };

struct CorrelationFormula {
  // A window counts only its voxels inside the volume. Otherwise voxels
  // outside count as zeros.
  bool clip_window = false;
  double divisor = 0;  // Stands for n where not 0; not with clip_window.
  bool per_voxel = false;
  CorrelationKind kind = CorrelationKind::kSquared;
  double smallest_variance = -1e300;
  double add = 0;
  double smallest_den = -1e300;
  double c1 = 0, c2 = 0;  // Of kStructural, which takes nothing else here but
                          // clip_window; images' means must be 0 then.
};

// Sizes and window radii, axes (d, h, w); a 2-D image has d = 1, radius 0.
struct CorrelationShape {
  int64_t volumes = 0;
  std::array<int64_t, 3> size = {};
  std::array<int64_t, 3> radius = {};
  // The window's weights along each axis: symmetric, 2 * radius + 1 of them,
  // adding up to 1. All empty: a box.
  std::array<std::vector<double>, 3> taps;
};

// What is known of one image of one volume before the windows are summed.
struct ImageStatistics {
  double mean = 0;      // Taken off before anything is summed.
  double variance = 0;  // About the mean; not used by the kernel.
  double floor = 0;     // Of the formula.
};

// The mean and variance of each of `volumes` runs of `count` voxels. NaN or
// infinite where a voxel is. The same bits for every number of threads.
template <typename T>
std::vector<ImageStatistics> MeasureImages(const T* images, int64_t volumes,
                                           int64_t count);

struct CorrelationSums {
  double value = 0;  // Over all windows of the volume.
  // Of the derivatives by floor_x and _y: with a gradient only, and where they
  // are not both 0.
  double floor_x = 0;
  double floor_y = 0;
};

// Sums the correlation over all windows of each volume, and its derivatives.
//
//   x, y             [volumes, d, h, w]; T is float or double
//   x_stats, y_stats  one per volume
//   weight           null, or what each window counts, like x
//   grad_x, grad_y   null, or where to write `factor` times the derivatives of
//                    the volume's value by each voxel; means and floors held
//                    fixed
//
// Computes in float64, in one pass over tiles that fit the cache, with as many
// threads as LibTorch has. Partial sums depend on the shape alone: the same
// bits for every number of threads, and on every x86-64.
template <typename T>
std::vector<CorrelationSums> CorrelateWindows(
    const T* x, const T* y, const CorrelationShape& shape,
    const CorrelationFormula& formula,
    const std::vector<ImageStatistics>& x_stats,
    const std::vector<ImageStatistics>& y_stats, const T* weight, double factor,
    T* grad_x, T* grad_y);

// Makes the gradient of one volume scale * gradient + slope * (image - mean).
template <typename T>
void ScaleGradient(const T* image, int64_t count, double scale, double slope,
                   double mean, T* gradient);

}  // namespace mir::losses::kernels

#endif  // MIR_LOSSES_KERNELS_WINDOW_CORRELATION_H_
