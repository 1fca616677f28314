#include "mir/losses/kernels/window_correlation.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "mir/base/target_clones.h"

namespace mir::losses::kernels {

// Rows are the unit of vectorisation: every function here runs along w.
namespace rows {

// The five sums of a window, in this order.
enum { kX, kY, kXX, kYY, kXY, kSums };
// The derivatives of the value by them, in this order.
enum { kDX, kDXX, kDXY, kDY, kDYY, kDerivatives };

template <typename T>
[[gnu::always_inline]] inline void AddProductsOf(const T* __restrict x,
                                                 const T* __restrict y,
                                                 double mean_x, double mean_y,
                                                 double sign, int64_t width,
                                                 double* __restrict sums) {
  double* const __restrict sx = sums + kX * width;
  double* const __restrict sy = sums + kY * width;
  double* const __restrict sxx = sums + kXX * width;
  double* const __restrict syy = sums + kYY * width;
  double* const __restrict sxy = sums + kXY * width;
  for (int64_t w = 0; w < width; ++w) {
    const double a = x[w] - mean_x;
    const double b = y[w] - mean_y;
    sx[w] += sign * a;
    sy[w] += sign * b;
    sxx[w] += sign * (a * a);
    syy[w] += sign * (b * b);
    sxy[w] += sign * (a * b);
  }
}

template <typename T>
[[gnu::always_inline]] inline void SlideProductsOf(
    const T* __restrict x_in, const T* __restrict y_in,
    const T* __restrict x_out, const T* __restrict y_out, double mean_x,
    double mean_y, int64_t width, double* __restrict sums) {
  double* const __restrict sx = sums + kX * width;
  double* const __restrict sy = sums + kY * width;
  double* const __restrict sxx = sums + kXX * width;
  double* const __restrict syy = sums + kYY * width;
  double* const __restrict sxy = sums + kXY * width;
  for (int64_t w = 0; w < width; ++w) {
    const double a = x_in[w] - mean_x;
    const double b = y_in[w] - mean_y;
    const double c = x_out[w] - mean_x;
    const double d = y_out[w] - mean_y;
    sx[w] += a - c;
    sy[w] += b - d;
    sxx[w] += a * a - c * c;
    syy[w] += b * b - d * d;
    sxy[w] += a * b - c * d;
  }
}

MIR_TARGET_CLONES void AddProducts(const float* x, const float* y,
                                   double mean_x, double mean_y, double sign,
                                   int64_t width, double* sums) {
  AddProductsOf(x, y, mean_x, mean_y, sign, width, sums);
}
MIR_TARGET_CLONES void AddProducts(const double* x, const double* y,
                                   double mean_x, double mean_y, double sign,
                                   int64_t width, double* sums) {
  AddProductsOf(x, y, mean_x, mean_y, sign, width, sums);
}
MIR_TARGET_CLONES void SlideProducts(const float* x_in, const float* y_in,
                                     const float* x_out, const float* y_out,
                                     double mean_x, double mean_y,
                                     int64_t width, double* sums) {
  SlideProductsOf(x_in, y_in, x_out, y_out, mean_x, mean_y, width, sums);
}
MIR_TARGET_CLONES void SlideProducts(const double* x_in, const double* y_in,
                                     const double* x_out, const double* y_out,
                                     double mean_x, double mean_y,
                                     int64_t width, double* sums) {
  SlideProductsOf(x_in, y_in, x_out, y_out, mean_x, mean_y, width, sums);
}

// Two slices at the same distance from a window's centre.
template <typename T>
[[gnu::always_inline]] inline void AddPairProductsOf(
    const T* __restrict x_one, const T* __restrict y_one,
    const T* __restrict x_two, const T* __restrict y_two, double mean_x,
    double mean_y, double tap, int64_t width, double* __restrict sums) {
  double* const __restrict sx = sums + kX * width;
  double* const __restrict sy = sums + kY * width;
  double* const __restrict sxx = sums + kXX * width;
  double* const __restrict syy = sums + kYY * width;
  double* const __restrict sxy = sums + kXY * width;
  for (int64_t w = 0; w < width; ++w) {
    const double a = x_one[w] - mean_x;
    const double b = y_one[w] - mean_y;
    const double c = x_two[w] - mean_x;
    const double d = y_two[w] - mean_y;
    sx[w] += tap * (a + c);
    sy[w] += tap * (b + d);
    sxx[w] += tap * (a * a + c * c);
    syy[w] += tap * (b * b + d * d);
    sxy[w] += tap * (a * b + c * d);
  }
}
MIR_TARGET_CLONES void AddPairProducts(const float* x_one, const float* y_one,
                                       const float* x_two, const float* y_two,
                                       double mean_x, double mean_y, double tap,
                                       int64_t width, double* sums) {
  AddPairProductsOf(x_one, y_one, x_two, y_two, mean_x, mean_y, tap, width,
                    sums);
}
MIR_TARGET_CLONES void AddPairProducts(const double* x_one, const double* y_one,
                                       const double* x_two, const double* y_two,
                                       double mean_x, double mean_y, double tap,
                                       int64_t width, double* sums) {
  AddPairProductsOf(x_one, y_one, x_two, y_two, mean_x, mean_y, tap, width,
                    sums);
}

MIR_TARGET_CLONES void AddTap(const double* __restrict in, double tap,
                              int64_t count, double* __restrict sums) {
  for (int64_t i = 0; i < count; ++i) sums[i] += tap * in[i];
}

MIR_TARGET_CLONES void AddTapPair(const double* __restrict one,
                                  const double* __restrict two, double tap,
                                  int64_t count, double* __restrict sums) {
  for (int64_t i = 0; i < count; ++i) sums[i] += tap * (one[i] + two[i]);
}

// The same for the usual window of structural similarity, whose sums then stay
// in registers: a middle row and five pairs of rows around it.
constexpr int64_t kUsualRadius = 5;

template <typename T>
[[gnu::always_inline]] inline void WeighProductsOf(
    const T* const* x_rows, const T* const* y_rows, double mean_x,
    double mean_y, const double* taps, int64_t width, double* __restrict sums) {
  double* const __restrict sx = sums + kX * width;
  double* const __restrict sy = sums + kY * width;
  double* const __restrict sxx = sums + kXX * width;
  double* const __restrict syy = sums + kYY * width;
  double* const __restrict sxy = sums + kXY * width;
  const T *x[2 * kUsualRadius + 1], *y[2 * kUsualRadius + 1];
  double tap[kUsualRadius + 1];
  for (int k = 0; k <= 2 * kUsualRadius; ++k) {
    x[k] = x_rows[k];
    y[k] = y_rows[k];
  }
  for (int k = 0; k <= kUsualRadius; ++k) tap[k] = taps[kUsualRadius + k];
#pragma GCC ivdep
  for (int64_t w = 0; w < width; ++w) {
    const double a = x[kUsualRadius][w] - mean_x;
    const double b = y[kUsualRadius][w] - mean_y;
    double sum_x = tap[0] * a, sum_y = tap[0] * b, sum_xx = tap[0] * (a * a),
           sum_yy = tap[0] * (b * b), sum_xy = tap[0] * (a * b);
#pragma GCC unroll 5
    for (int k = 1; k <= kUsualRadius; ++k) {
      const double c = x[kUsualRadius - k][w] - mean_x;
      const double d = y[kUsualRadius - k][w] - mean_y;
      const double e = x[kUsualRadius + k][w] - mean_x;
      const double f = y[kUsualRadius + k][w] - mean_y;
      sum_x += tap[k] * (c + e);
      sum_y += tap[k] * (d + f);
      sum_xx += tap[k] * (c * c + e * e);
      sum_yy += tap[k] * (d * d + f * f);
      sum_xy += tap[k] * (c * d + e * f);
    }
    sx[w] = sum_x;
    sy[w] = sum_y;
    sxx[w] = sum_xx;
    syy[w] = sum_yy;
    sxy[w] = sum_xy;
  }
}
MIR_TARGET_CLONES void WeighProducts(const float* const* x_rows,
                                     const float* const* y_rows, double mean_x,
                                     double mean_y, const double* taps,
                                     int64_t width, double* sums) {
  WeighProductsOf(x_rows, y_rows, mean_x, mean_y, taps, width, sums);
}
MIR_TARGET_CLONES void WeighProducts(const double* const* x_rows,
                                     const double* const* y_rows, double mean_x,
                                     double mean_y, const double* taps,
                                     int64_t width, double* sums) {
  WeighProductsOf(x_rows, y_rows, mean_x, mean_y, taps, width, sums);
}

MIR_TARGET_CLONES void WeighPairs(const double* const* rows, const double* taps,
                                  int64_t count, double* __restrict sums) {
  const double* row[2 * kUsualRadius + 1];
  double tap[kUsualRadius + 1];
  for (int k = 0; k <= 2 * kUsualRadius; ++k) row[k] = rows[k];
  for (int k = 0; k <= kUsualRadius; ++k) tap[k] = taps[kUsualRadius + k];
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    double sum = tap[0] * row[kUsualRadius][i];
#pragma GCC unroll 5
    for (int k = 1; k <= kUsualRadius; ++k) {
      sum += tap[k] * (row[kUsualRadius - k][i] + row[kUsualRadius + k][i]);
    }
    sums[i] = sum;
  }
}

// As Box, with weights: taps[radius] is the middle one.
MIR_TARGET_CLONES void TapRow(const double* __restrict in,
                              const double* __restrict taps, int64_t width,
                              int64_t radius, double* __restrict scratch,
                              double* __restrict out) {
  for (int64_t i = 0; i < radius; ++i) scratch[i] = 0;
  for (int64_t w = 0; w < width; ++w) scratch[radius + w] = in[w];
  for (int64_t i = radius + width; i < width + 2 * radius; ++i) scratch[i] = 0;
  const double middle = taps[radius];
  if (radius == kUsualRadius) {
    double tap[kUsualRadius + 1];
    for (int k = 1; k <= kUsualRadius; ++k) tap[k] = taps[kUsualRadius + k];
    for (int64_t w = 0; w < width; ++w) {
      const double* const at = scratch + w + kUsualRadius;
      double sum = middle * at[0];
#pragma GCC unroll 5
      for (int k = 1; k <= kUsualRadius; ++k) sum += tap[k] * (at[-k] + at[k]);
      out[w] = sum;
    }
    return;
  }
  for (int64_t w = 0; w < width; ++w) out[w] = middle * in[w];
  for (int64_t k = 1; k <= radius; ++k) {
    const double tap = taps[radius + k];
    const double* const __restrict left = scratch + radius - k;
    const double* const __restrict right = scratch + radius + k;
    for (int64_t w = 0; w < width; ++w) out[w] += tap * (left[w] + right[w]);
  }
}

template <typename T>
[[gnu::always_inline]] inline void WeightRowsOf(const T* __restrict weight,
                                                int64_t width, int64_t rows,
                                                double* __restrict values) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t w = 0; w < width; ++w) values[row * width + w] *= weight[w];
  }
}
MIR_TARGET_CLONES void WeightRows(const float* weight, int64_t width,
                                  int64_t rows, double* values) {
  WeightRowsOf(weight, width, rows, values);
}
MIR_TARGET_CLONES void WeightRows(const double* weight, int64_t width,
                                  int64_t rows, double* values) {
  WeightRowsOf(weight, width, rows, values);
}

MIR_TARGET_CLONES void Add(const double* __restrict in, int64_t count,
                           double* __restrict sums) {
  for (int64_t i = 0; i < count; ++i) sums[i] += in[i];
}

MIR_TARGET_CLONES void Subtract(const double* __restrict out, int64_t count,
                                double* __restrict sums) {
  for (int64_t i = 0; i < count; ++i) sums[i] -= out[i];
}

MIR_TARGET_CLONES void Slide(const double* __restrict in,
                             const double* __restrict out, int64_t count,
                             double* __restrict sums) {
  for (int64_t i = 0; i < count; ++i) sums[i] += in[i] - out[i];
}

// As Slide, and keeps `in` in the place of `out`.
MIR_TARGET_CLONES void SlideAndKeep(const double* __restrict in,
                                    double* __restrict kept, int64_t count,
                                    double* __restrict sums) {
  for (int64_t i = 0; i < count; ++i) {
    sums[i] += in[i] - kept[i];
    kept[i] = in[i];
  }
}

// Sums over the 2 * radius + 1 voxels around each; zeros outside. Sums of 2, 4,
// 8, ... neighbours are built in place in `scratch` (width + 2 * radius), and
// those that the binary digits of the window's width name are added up.
MIR_TARGET_CLONES void Box(const double* __restrict in, int64_t width,
                           int64_t radius, double* __restrict scratch,
                           double* __restrict out) {
  const int64_t window = 2 * radius + 1;
  const int64_t padded = width + 2 * radius;
  for (int64_t i = 0; i < radius; ++i) scratch[i] = 0;
  for (int64_t w = 0; w < width; ++w) scratch[radius + w] = in[w];
  for (int64_t i = radius + width; i < padded; ++i) scratch[i] = 0;
  if (window == 9) {
    for (int64_t w = 0; w < width; ++w) {
      const double* const at = scratch + w;
      const double first = (at[1] + at[2]) + (at[3] + at[4]);
      const double second = (at[5] + at[6]) + (at[7] + at[8]);
      out[w] = at[0] + (first + second);
    }
    return;
  }
  for (int64_t w = 0; w < width; ++w) out[w] = scratch[w];
  int64_t covered = 1;
  for (int64_t span = 2; span <= window; span *= 2) {
    const int64_t half = span / 2;
#pragma GCC ivdep
    for (int64_t i = 0; i + span <= padded; ++i) {
      scratch[i] = scratch[i] + scratch[i + half];
    }
    if ((window & span) != 0) {
      for (int64_t w = 0; w < width; ++w) out[w] += scratch[w + covered];
      covered += span;
    }
  }
}

struct Correlate {
  double inverse_count_dh;  // 1 / n is this times inverse_count_w.
  double floor_x, floor_y;
};

// From the sums of each window: its value, the derivatives by the sums, and
// the derivatives by the two variances.
template <bool squared>
[[gnu::always_inline]] inline void CorrelateRow(
    const double* __restrict sums, const double* __restrict inverse_count_w,
    const Correlate& at, const CorrelationFormula& formula, int64_t width,
    double* __restrict value, double* __restrict derivatives,
    double* __restrict by_var_x, double* __restrict by_var_y) {
  const double per_dh = at.inverse_count_dh;
  const double floor_x = at.floor_x, floor_y = at.floor_y;
  const double smallest_variance = formula.smallest_variance;
  const double add = formula.add, smallest_den = formula.smallest_den;
  const double s_of_n = formula.per_voxel ? 1 : 0;
  const double s_alone = 1 - s_of_n;
  for (int64_t w = 0; w < width; ++w) {
    const double x = sums[kX * width + w], y = sums[kY * width + w];
    const double inverse_n = per_dh * inverse_count_w[w];
    const double s = s_alone + s_of_n * inverse_n;
    const double mean_x = x * inverse_n, mean_y = y * inverse_n;
    const double cov = s * (sums[kXY * width + w] - x * mean_y);
    double var_x = s * (sums[kXX * width + w] - x * mean_x);
    double var_y = s * (sums[kYY * width + w] - y * mean_y);
    var_x = var_x > smallest_variance ? var_x : smallest_variance;
    var_y = var_y > smallest_variance ? var_y : smallest_variance;
    const double full_x = var_x + floor_x, full_y = var_y + floor_y;
    const double den = full_x * full_y + add;
    const double limited = den > smallest_den ? den : smallest_den;
    const double moves = den >= smallest_den ? 1.0 : 0.0;
    const double inverse = 1 / limited;
    double result, by_cov, by_den;
    if (squared) {
      result = cov * cov * inverse;
      by_cov = 2 * cov * inverse;
      by_den = -moves * result * inverse;
    } else {
      by_cov = std::sqrt(inverse);
      result = cov * by_cov;
      by_den = -0.5 * moves * result * inverse;
    }
    const double by_x = by_den * full_y, by_y = by_den * full_x;
    value[w] = result;
    by_var_x[w] = by_x;
    by_var_y[w] = by_y;
    derivatives[kDX * width + w] = -s * (mean_y * by_cov + 2 * mean_x * by_x);
    derivatives[kDXX * width + w] = s * by_x;
    derivatives[kDY * width + w] = -s * (mean_x * by_cov + 2 * mean_y * by_y);
    derivatives[kDYY * width + w] = s * by_y;
    derivatives[kDXY * width + w] = s * by_cov;
  }
}

// The same for structural similarity.
MIR_TARGET_CLONES void CompareStructure(
    const double* __restrict sums, const double* __restrict inverse_count_w,
    const Correlate& at, const CorrelationFormula& formula, int64_t width,
    double* __restrict value, double* __restrict derivatives,
    double* __restrict by_var_x, double* __restrict by_var_y) {
  const double per_dh = at.inverse_count_dh;
  const double c1 = formula.c1, c2 = formula.c2;
  for (int64_t w = 0; w < width; ++w) {
    const double x = sums[kX * width + w], y = sums[kY * width + w];
    const double s = per_dh * inverse_count_w[w];
    const double mean_x = x * s, mean_y = y * s;
    const double cov = s * sums[kXY * width + w] - mean_x * mean_y;
    const double var_x = s * sums[kXX * width + w] - mean_x * mean_x;
    const double var_y = s * sums[kYY * width + w] - mean_y * mean_y;
    const double top_means = 2 * (mean_x * mean_y) + c1;
    const double top_cov = 2 * cov + c2;
    const double inverse_means = 1 / (mean_x * mean_x + mean_y * mean_y + c1);
    const double inverse_vars = 1 / (var_x + var_y + c2);
    const double inverse = inverse_means * inverse_vars;
    const double result = top_means * top_cov * inverse;
    const double by_cov = 2 * top_means * inverse;
    const double by_var = -result * inverse_vars;
    const double by_top = 2 * top_cov * inverse;
    const double by_bottom = 2 * result * inverse_means;
    value[w] = result;
    by_var_x[w] = by_var;
    by_var_y[w] = by_var;
    derivatives[kDX * width + w] = s * (by_top * mean_y - by_bottom * mean_x -
                                        mean_y * by_cov - 2 * mean_x * by_var);
    derivatives[kDY * width + w] = s * (by_top * mean_x - by_bottom * mean_y -
                                        mean_x * by_cov - 2 * mean_y * by_var);
    derivatives[kDXX * width + w] = s * by_var;
    derivatives[kDYY * width + w] = s * by_var;
    derivatives[kDXY * width + w] = s * by_cov;
  }
}

MIR_TARGET_CLONES void CorrelateSquared(
    const double* sums, const double* inverse_count_w, const Correlate& at,
    const CorrelationFormula& formula, int64_t width, double* value,
    double* derivatives, double* by_var_x, double* by_var_y) {
  CorrelateRow<true>(sums, inverse_count_w, at, formula, width, value,
                     derivatives, by_var_x, by_var_y);
}
MIR_TARGET_CLONES void CorrelatePlain(
    const double* sums, const double* inverse_count_w, const Correlate& at,
    const CorrelationFormula& formula, int64_t width, double* value,
    double* derivatives, double* by_var_x, double* by_var_y) {
  CorrelateRow<false>(sums, inverse_count_w, at, formula, width, value,
                      derivatives, by_var_x, by_var_y);
}

// The gradient to `own`: linear + 2 square own + product other.
template <typename T>
[[gnu::always_inline]] inline void GradientRowOf(
    const double* __restrict linear, const double* __restrict square,
    const double* __restrict product, const T* __restrict own,
    const T* __restrict other, double mean_own, double mean_other,
    int64_t width, T* __restrict out) {
  for (int64_t w = 0; w < width; ++w) {
    out[w] = static_cast<T>(linear[w] + 2 * square[w] * (own[w] - mean_own) +
                            product[w] * (other[w] - mean_other));
  }
}
MIR_TARGET_CLONES void GradientRow(const double* linear, const double* square,
                                   const double* product, const float* own,
                                   const float* other, double mean_own,
                                   double mean_other, int64_t width,
                                   float* out) {
  GradientRowOf(linear, square, product, own, other, mean_own, mean_other,
                width, out);
}
MIR_TARGET_CLONES void GradientRow(const double* linear, const double* square,
                                   const double* product, const double* own,
                                   const double* other, double mean_own,
                                   double mean_other, int64_t width,
                                   double* out) {
  GradientRowOf(linear, square, product, own, other, mean_own, mean_other,
                width, out);
}

// Eight partial sums, so that the order does not depend on the vector length.
MIR_TARGET_CLONES double Total(const double* __restrict in, int64_t count) {
  double lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int lane = 0; lane < 8; ++lane) lanes[lane] += in[i + lane];
  }
  double total = 0;
  for (int lane = 0; lane < 8; ++lane) total += lanes[lane];
  for (; i < count; ++i) total += in[i];
  return total;
}

// Adds the sum of (in - shift) and of its square to `sums`.
template <typename T>
[[gnu::always_inline]] inline void MomentsOf(const T* __restrict in,
                                             int64_t count, double shift,
                                             double* __restrict sums) {
  double first[8] = {}, second[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int lane = 0; lane < 8; ++lane) {
      const double value = in[i + lane] - shift;
      first[lane] += value;
      second[lane] += value * value;
    }
  }
  for (int lane = 0; lane < 8; ++lane) {
    sums[0] += first[lane];
    sums[1] += second[lane];
  }
  for (; i < count; ++i) {
    const double value = in[i] - shift;
    sums[0] += value;
    sums[1] += value * value;
  }
}
MIR_TARGET_CLONES void Moments(const float* in, int64_t count, double shift,
                               double* sums) {
  MomentsOf(in, count, shift, sums);
}
MIR_TARGET_CLONES void Moments(const double* in, int64_t count, double shift,
                               double* sums) {
  MomentsOf(in, count, shift, sums);
}

template <typename T>
[[gnu::always_inline]] inline void ScaleOf(const T* __restrict grad,
                                           const T* __restrict image,
                                           int64_t count, double scale,
                                           double slope, double mean,
                                           T* __restrict out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<T>(scale * grad[i] + slope * (image[i] - mean));
  }
}
MIR_TARGET_CLONES void Scale(const float* grad, const float* image,
                             int64_t count, double scale, double slope,
                             double mean, float* out) {
  ScaleOf(grad, image, count, scale, slope, mean, out);
}
MIR_TARGET_CLONES void Scale(const double* grad, const double* image,
                             int64_t count, double scale, double slope,
                             double mean, double* out) {
  ScaleOf(grad, image, count, scale, slope, mean, out);
}

}  // namespace rows

namespace {

// Elements per task of the element-wise passes.
constexpr int64_t kChunk = 1 << 16;

// A half-open range of rows or slices.
struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
  Range Grown(int64_t by, int64_t limit) const {
    return {std::max<int64_t>(begin - by, 0), std::min(end + by, limit)};
  }
};

// Equal parts of at most about `wanted` of [0, size).
struct Split {
  Split(int64_t size, int64_t wanted)
      : size(size), parts((size + wanted - 1) / wanted) {}
  Range operator[](int64_t part) const {
    return {size * part / parts, size * (part + 1) / parts};
  }
  int64_t size, parts;
};

// Memory of one thread, kept between calls: fresh pages cost more than sums.
double* Workspace(int64_t count) {
  static thread_local std::vector<double> memory;
  if (memory.size() < static_cast<size_t>(count)) memory.resize(count);
  return memory.data();
}

// 1 / (number of voxels within `radius` that are inside, or the sum of their
// taps), along one axis; or the same value everywhere.
std::vector<double> InverseCounts(const CorrelationFormula& formula,
                                  const std::vector<double>& taps, int64_t size,
                                  int64_t radius) {
  std::vector<double> inverse(size, 1.0);
  if (formula.clip_window && !taps.empty()) {
    for (int64_t i = 0; i < size; ++i) {
      double sum = 0;
      for (int64_t k = -radius; k <= radius; ++k) {
        if (i + k >= 0 && i + k < size) sum += taps[radius + k];
      }
      inverse[i] = 1 / sum;
    }
  } else if (formula.clip_window) {
    for (int64_t i = 0; i < size; ++i) {
      inverse[i] = 1.0 / (std::min(i + radius, size - 1) -
                          std::max<int64_t>(i - radius, 0) + 1);
    }
  }
  return inverse;
}

template <typename T>
class Correlation {
 public:
  Correlation(const T* x, const T* y, const CorrelationShape& shape,
              const CorrelationFormula& formula,
              const std::vector<ImageStatistics>& x_stats,
              const std::vector<ImageStatistics>& y_stats, const T* weight,
              T* grad_x, T* grad_y)
      : x_(x),
        y_(y),
        weight_(weight),
        grad_x_(grad_x),
        grad_y_(grad_y),
        formula_(formula),
        x_stats_(x_stats),
        y_stats_(y_stats),
        depth_(shape.size[0]),
        height_(shape.size[1]),
        width_(shape.size[2]),
        // A window that reaches beyond both ends sums no more than all.
        radius_d_(std::min(shape.radius[0], depth_ - 1)),
        radius_h_(std::min(shape.radius[1], height_ - 1)),
        radius_w_(std::min(shape.radius[2], width_ - 1)),
        taps_d_(Middle(shape.taps[0], radius_d_)),
        taps_h_(Middle(shape.taps[1], radius_h_)),
        taps_w_(Middle(shape.taps[2], radius_w_)),
        weighted_(!shape.taps[2].empty()),
        // Slabs and tiles that fit the second-level cache, and are large
        // beside the borders that neighbours compute twice.
        slabs_(depth_, std::max<int64_t>(64, 4 * radius_d_)),
        tiles_(height_, std::max<int64_t>(32, 4 * radius_h_)),
        inverse_d_(InverseCounts(formula, taps_d_, depth_, radius_d_)),
        inverse_h_(InverseCounts(formula, taps_h_, height_, radius_h_)),
        inverse_w_(InverseCounts(formula, taps_w_, width_, radius_w_)) {
    if (!formula.clip_window && !weighted_) {
      double divisor = formula.divisor;
      if (divisor == 0) {
        divisor = 1;
        for (const int64_t radius : shape.radius) divisor *= 2 * radius + 1;
      }
      for (double& inverse : inverse_w_) inverse /= divisor;
    }
    // Those that a gradient needs lie side by side.
    first_ = grad_x ? rows::kDX : rows::kDXY;
    last_ = grad_y ? rows::kDYY : rows::kDXY;
  }

  int64_t tasks_per_volume() const { return slabs_.parts * tiles_.parts; }

  CorrelationSums Run(int64_t task) const;

 private:
  struct Buffers;

  bool wants_gradient() const { return grad_x_ || grad_y_; }

  // Those of a window that reaches no further than `radius`.
  static std::vector<double> Middle(const std::vector<double>& taps,
                                    int64_t radius) {
    if (taps.empty()) return {};
    const auto middle = taps.begin() + taps.size() / 2;
    return std::vector<double>(middle - radius, middle + radius + 1);
  }

  void WeighSlice(int64_t volume, int64_t d, const Range& rows,
                  double* columns) const;
  void SlideToSlice(int64_t volume, int64_t d, bool first, const Range& rows,
                    double* columns) const;

  // Along w.
  void SumRow(const double* in, double* scratch, double* out) const {
    if (weighted_) {
      rows::TapRow(in, taps_w_.data(), width_, radius_w_, scratch, out);
    } else {
      rows::Box(in, width_, radius_w_, scratch, out);
    }
  }

  const T* const x_;
  const T* const y_;
  const T* const weight_;
  T* const grad_x_;
  T* const grad_y_;
  const CorrelationFormula& formula_;
  const std::vector<ImageStatistics>& x_stats_;
  const std::vector<ImageStatistics>& y_stats_;
  const int64_t depth_, height_, width_;
  const int64_t radius_d_, radius_h_, radius_w_;
  const std::vector<double> taps_d_, taps_h_, taps_w_;
  const bool weighted_;
  const Split slabs_, tiles_;
  const std::vector<double> inverse_d_, inverse_h_;
  std::vector<double> inverse_w_;
  int first_, last_;
};

// Brings the sums along d, of each (h, w), from slice d - 1 to slice d.
template <typename T>
void Correlation<T>::SlideToSlice(int64_t volume, int64_t d, bool first,
                                  const Range& range, double* columns) const {
  const double mean_x = x_stats_[volume].mean;
  const double mean_y = y_stats_[volume].mean;
  const auto row = [&](const T* image, int64_t slice, int64_t h) {
    return image + ((volume * depth_ + slice) * height_ + h) * width_;
  };
  const int64_t stride = rows::kSums * width_;
  if (first) {
    std::fill(columns, columns + range.size() * stride, 0.0);
    const Range window = Range{d, d + 1}.Grown(radius_d_, depth_);
    for (int64_t slice = window.begin; slice < window.end; ++slice) {
      for (int64_t h = range.begin; h < range.end; ++h) {
        rows::AddProducts(row(x_, slice, h), row(y_, slice, h), mean_x, mean_y,
                          1, width_, columns + (h - range.begin) * stride);
      }
    }
    return;
  }
  const int64_t in = d + radius_d_;
  const int64_t out = d - radius_d_ - 1;
  for (int64_t h = range.begin; h < range.end; ++h) {
    double* const sums = columns + (h - range.begin) * stride;
    if (in < depth_ && out >= 0) {
      rows::SlideProducts(row(x_, in, h), row(y_, in, h), row(x_, out, h),
                          row(y_, out, h), mean_x, mean_y, width_, sums);
    } else if (in < depth_) {
      rows::AddProducts(row(x_, in, h), row(y_, in, h), mean_x, mean_y, 1,
                        width_, sums);
    } else if (out >= 0) {
      rows::AddProducts(row(x_, out, h), row(y_, out, h), mean_x, mean_y, -1,
                        width_, sums);
    }
  }
}

// The weighted sums along d, of each (h, w), at slice d.
template <typename T>
void Correlation<T>::WeighSlice(int64_t volume, int64_t d, const Range& range,
                                double* columns) const {
  const double mean_x = x_stats_[volume].mean;
  const double mean_y = y_stats_[volume].mean;
  const auto row = [&](const T* image, int64_t slice, int64_t h) {
    return image + ((volume * depth_ + slice) * height_ + h) * width_;
  };
  const int64_t stride = rows::kSums * width_;
  const bool usual = radius_d_ == rows::kUsualRadius && d >= radius_d_ &&
                     d + radius_d_ < depth_;
  for (int64_t h = range.begin; h < range.end; ++h) {
    double* const sums = columns + (h - range.begin) * stride;
    if (usual) {
      const T* x_rows[2 * rows::kUsualRadius + 1];
      const T* y_rows[2 * rows::kUsualRadius + 1];
      for (int64_t k = 0; k <= 2 * radius_d_; ++k) {
        x_rows[k] = row(x_, d - radius_d_ + k, h);
        y_rows[k] = row(y_, d - radius_d_ + k, h);
      }
      rows::WeighProducts(x_rows, y_rows, mean_x, mean_y, taps_d_.data(),
                          width_, sums);
      continue;
    }
    std::fill(sums, sums + stride, 0.0);
    rows::AddProducts(row(x_, d, h), row(y_, d, h), mean_x, mean_y,
                      taps_d_[radius_d_], width_, sums);
    for (int64_t k = 1; k <= radius_d_; ++k) {
      const double tap = taps_d_[radius_d_ + k];
      const int64_t before = d - k, after = d + k;
      if (before >= 0 && after < depth_) {
        rows::AddPairProducts(row(x_, before, h), row(y_, before, h),
                              row(x_, after, h), row(y_, after, h), mean_x,
                              mean_y, tap, width_, sums);
      } else if (before >= 0 || after < depth_) {
        const int64_t slice = before >= 0 ? before : after;
        rows::AddProducts(row(x_, slice, h), row(y_, slice, h), mean_x, mean_y,
                          tap, width_, sums);
      }
    }
  }
}

// The weighted sum of rows h - radius to h + radius that are in `range`; row(h)
// is where one lies.
template <typename Row>
void WeighRows(const Row& row, const std::vector<double>& taps, int64_t radius,
               int64_t h, const Range& range, int64_t count, double* sums) {
  if (radius == rows::kUsualRadius && h - radius >= range.begin &&
      h + radius < range.end) {
    const double* near[2 * rows::kUsualRadius + 1];
    for (int64_t k = 0; k <= 2 * radius; ++k) near[k] = row(h - radius + k);
    rows::WeighPairs(near, taps.data(), count, sums);
    return;
  }
  std::fill(sums, sums + count, 0.0);
  rows::AddTap(row(h), taps[radius], count, sums);
  for (int64_t k = 1; k <= radius; ++k) {
    const double tap = taps[radius + k];
    const bool before = h - k >= range.begin, after = h + k < range.end;
    if (before && after) {
      rows::AddTapPair(row(h - k), row(h + k), tap, count, sums);
    } else if (before || after) {
      rows::AddTap(before ? row(h - k) : row(h + k), tap, count, sums);
    }
  }
}

// One slab of slices times one tile of rows: slice by slice, the windows' sums
// along d, h and w, the values and derivatives, and of those again the sums
// along w, h and d, which lag radius_d_ slices behind.
template <typename T>
CorrelationSums Correlation<T>::Run(int64_t task) const {
  const int64_t volume = task / tasks_per_volume();
  const Range slab = slabs_[task % tasks_per_volume() / tiles_.parts];
  const Range tile = tiles_[task % tiles_.parts];
  const bool gradient = wants_gradient();
  // The windows that hold a voxel of this task, and the rows in those.
  const Range slices = gradient ? slab.Grown(radius_d_, depth_) : slab;
  const Range windows = gradient ? tile.Grown(radius_h_, height_) : tile;
  const Range columns_range = windows.Grown(radius_h_, height_);

  const int64_t sums_stride = rows::kSums * width_;
  const int64_t kinds = gradient ? last_ - first_ + 1 : 0;
  const int64_t kind_stride = kinds * width_;
  const int64_t plane = tile.size() * kind_stride;
  const int64_t ring_length = 2 * radius_d_ + 1;

  double* memory = Workspace(
      columns_range.size() * sums_stride + 2 * sums_stride + width_ +
      2 * radius_w_ + (3 + rows::kDerivatives) * width_ +
      windows.size() * kind_stride + (ring_length + 1) * plane + kind_stride);
  const auto take = [&memory](int64_t count) {
    double* const taken = memory;
    memory += count;
    return taken;
  };
  double* const columns = take(columns_range.size() * sums_stride);
  double* const along_h = take(sums_stride);
  double* const sums = take(sums_stride);
  double* const scratch = take(width_ + 2 * radius_w_);
  double* const value = take(width_);
  double* const by_var_x = take(width_);
  double* const by_var_y = take(width_);
  double* const derivatives = take(rows::kDerivatives * width_);
  double* const boxed = take(windows.size() * kind_stride);
  double* const derivatives_along_h = take(kind_stride);
  double* const ring = take(ring_length * plane);
  double* const total = take(plane);
  std::fill(ring, ring + (ring_length + 1) * plane, 0.0);

  const ImageStatistics& x_stats = x_stats_[volume];
  const ImageStatistics& y_stats = y_stats_[volume];
  CorrelationSums result;
  const auto formula =
      formula_.kind == CorrelationKind::kSquared ? rows::CorrelateSquared
      : formula_.kind == CorrelationKind::kPlain ? rows::CorrelatePlain
                                                 : rows::CompareStructure;
  // Beyond the last slice windows only leave the ring.
  const int64_t end = gradient ? slab.end + radius_d_ : slab.end;
  for (int64_t d = slices.begin; d < end; ++d) {
    double* const ring_slice = ring + d % ring_length * plane;
    if (d >= depth_) {
      if (!weighted_) rows::Subtract(ring_slice, plane, total);
    } else {
      if (weighted_) {
        WeighSlice(volume, d, columns_range, columns);
      } else {
        SlideToSlice(volume, d, d == slices.begin, columns_range, columns);
      }
      std::fill(along_h, along_h + sums_stride, 0.0);
      const auto column = [&](int64_t h) {
        return columns + (h - columns_range.begin) * sums_stride;
      };
      for (int64_t h = columns_range.begin;
           !weighted_ && h < std::min(windows.begin + radius_h_, height_);
           ++h) {
        rows::Add(column(h), sums_stride, along_h);
      }
      for (int64_t h = windows.begin; h < windows.end; ++h) {
        const int64_t in = h + radius_h_;
        const int64_t out = h - radius_h_ - 1;
        const bool leaves = out >= columns_range.begin && h > windows.begin;
        if (weighted_) {
          WeighRows(column, taps_h_, radius_h_, h, columns_range, sums_stride,
                    along_h);
        } else if (in < height_ && leaves) {
          rows::Slide(column(in), column(out), sums_stride, along_h);
        } else if (in < height_) {
          rows::Add(column(in), sums_stride, along_h);
        } else if (leaves) {
          rows::Subtract(column(out), sums_stride, along_h);
        }
        for (int kind = 0; kind < rows::kSums; ++kind) {
          SumRow(along_h + kind * width_, scratch, sums + kind * width_);
        }
        const rows::Correlate at = {inverse_d_[d] * inverse_h_[h],
                                    x_stats.floor, y_stats.floor};
        formula(sums, inverse_w_.data(), at, formula_, width_, value,
                derivatives, by_var_x, by_var_y);
        if (weight_) {
          // The value and all derivatives lie side by side.
          rows::WeightRows(
              weight_ + ((volume * depth_ + d) * height_ + h) * width_, width_,
              3 + rows::kDerivatives, value);
        }
        const bool own =
            d >= slab.begin && d < slab.end && h >= tile.begin && h < tile.end;
        if (own) {
          result.value += rows::Total(value, width_);
          if (gradient) {
            result.floor_x += rows::Total(by_var_x, width_);
            result.floor_y += rows::Total(by_var_y, width_);
          }
        }
        for (int64_t kind = 0; kind < kinds; ++kind) {
          SumRow(derivatives + (first_ + kind) * width_, scratch,
                 boxed + (h - windows.begin) * kind_stride + kind * width_);
        }
      }
      if (!gradient) continue;

      const auto boxed_row = [&](int64_t h) {
        return boxed + (h - windows.begin) * kind_stride;
      };
      std::fill(derivatives_along_h, derivatives_along_h + kind_stride, 0.0);
      for (int64_t h = windows.begin;
           !weighted_ && h < std::min(tile.begin + radius_h_, height_); ++h) {
        rows::Add(boxed_row(h), kind_stride, derivatives_along_h);
      }
      for (int64_t h = tile.begin; h < tile.end; ++h) {
        const int64_t in = h + radius_h_;
        const int64_t out = h - radius_h_ - 1;
        const bool leaves = out >= windows.begin && h > tile.begin;
        if (weighted_) {
          WeighRows(boxed_row, taps_h_, radius_h_, h, windows, kind_stride,
                    ring_slice + (h - tile.begin) * kind_stride);
          continue;
        }
        if (in < height_ && leaves) {
          rows::Slide(boxed_row(in), boxed_row(out), kind_stride,
                      derivatives_along_h);
        } else if (in < height_) {
          rows::Add(boxed_row(in), kind_stride, derivatives_along_h);
        } else if (leaves) {
          rows::Subtract(boxed_row(out), kind_stride, derivatives_along_h);
        }
        const int64_t offset = (h - tile.begin) * kind_stride;
        rows::SlideAndKeep(derivatives_along_h, ring_slice + offset,
                           kind_stride, total + offset);
      }
    }

    const int64_t done = d - radius_d_;
    if (!gradient || done < slab.begin) continue;
    if (weighted_) {
      WeighRows(
          [&](int64_t slice) { return ring + slice % ring_length * plane; },
          taps_d_, radius_d_, done, Range{0, depth_}, plane, total);
    }
    for (int64_t h = tile.begin; h < tile.end; ++h) {
      const int64_t voxel = ((volume * depth_ + done) * height_ + h) * width_;
      const double* const row = total + (h - tile.begin) * kind_stride;
      const auto kind = [&](int which) {
        return row + (which - first_) * width_;
      };
      if (grad_x_) {
        rows::GradientRow(kind(rows::kDX), kind(rows::kDXX), kind(rows::kDXY),
                          x_ + voxel, y_ + voxel, x_stats.mean, y_stats.mean,
                          width_, grad_x_ + voxel);
      }
      if (grad_y_) {
        rows::GradientRow(kind(rows::kDY), kind(rows::kDYY), kind(rows::kDXY),
                          y_ + voxel, x_ + voxel, y_stats.mean, x_stats.mean,
                          width_, grad_y_ + voxel);
      }
    }
  }
  return result;
}

}  // namespace

template <typename T>
std::vector<ImageStatistics> MeasureImages(const T* images, int64_t volumes,
                                           int64_t count) {
  const Split chunks(count, kChunk);
  std::vector<std::array<double, 2>> sums(volumes * chunks.parts, {0.0, 0.0});
  // Shifted by the first voxel, one pass keeps more digits than the type has.
  at::parallel_for(0, sums.size(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const T* const image = images + task / chunks.parts * count;
      const Range range = chunks[task % chunks.parts];
      rows::Moments(image + range.begin, range.size(), image[0],
                    sums[task].data());
    }
  });
  std::vector<ImageStatistics> statistics(volumes);
  for (int64_t volume = 0; volume < volumes; ++volume) {
    double first = 0, second = 0;
    for (int64_t part = 0; part < chunks.parts; ++part) {
      first += sums[volume * chunks.parts + part][0];
      second += sums[volume * chunks.parts + part][1];
    }
    first /= count;
    second /= count;
    statistics[volume].mean = images[volume * count] + first;
    const double variance = second - first * first;
    // Written so that NaN stays.
    statistics[volume].variance = variance < 0 ? 0 : variance;
  }
  return statistics;
}

template <typename T>
std::vector<CorrelationSums> CorrelateWindows(
    const T* x, const T* y, const CorrelationShape& shape,
    const CorrelationFormula& formula,
    const std::vector<ImageStatistics>& x_stats,
    const std::vector<ImageStatistics>& y_stats, const T* weight, T* grad_x,
    T* grad_y) {
  const Correlation<T> correlation(x, y, shape, formula, x_stats, y_stats,
                                   weight, grad_x, grad_y);
  const int64_t per_volume = correlation.tasks_per_volume();
  std::vector<CorrelationSums> parts(shape.volumes * per_volume);
  at::parallel_for(0, parts.size(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      parts[task] = correlation.Run(task);
    }
  });
  std::vector<CorrelationSums> sums(shape.volumes);
  for (size_t task = 0; task < parts.size(); ++task) {
    CorrelationSums& sum = sums[task / per_volume];
    sum.value += parts[task].value;
    sum.floor_x += parts[task].floor_x;
    sum.floor_y += parts[task].floor_y;
  }
  return sums;
}

template <typename T>
void ScaleGradient(const T* grad, const T* image, int64_t volumes,
                   int64_t count, double scale,
                   const std::vector<double>& slope,
                   const std::vector<double>& mean, T* out) {
  const Split chunks(count, kChunk);
  at::parallel_for(
      0, volumes * chunks.parts, 1, [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
          const int64_t volume = task / chunks.parts;
          const Range range = chunks[task % chunks.parts];
          const int64_t offset = volume * count + range.begin;
          rows::Scale(grad + offset, image + offset, range.size(), scale,
                      slope[volume], mean[volume], out + offset);
        }
      });
}

#define MIR_INSTANTIATE(T)                                                     \
  template std::vector<ImageStatistics> MeasureImages<T>(const T*, int64_t,    \
                                                         int64_t);             \
  template std::vector<CorrelationSums> CorrelateWindows<T>(                   \
      const T*, const T*, const CorrelationShape&, const CorrelationFormula&,  \
      const std::vector<ImageStatistics>&,                                     \
      const std::vector<ImageStatistics>&, const T*, T*, T*);                  \
  template void ScaleGradient<T>(const T*, const T*, int64_t, int64_t, double, \
                                 const std::vector<double>&,                   \
                                 const std::vector<double>&, T*);
MIR_INSTANTIATE(float)
MIR_INSTANTIATE(double)
#undef MIR_INSTANTIATE

}  // namespace mir::losses::kernels
