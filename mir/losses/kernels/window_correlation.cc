#include "mir/losses/kernels/window_correlation.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "mir/base/target_clones.h"

namespace mir::losses::kernels {

// Rows are the unit of vectorisation: every function here runs along w.
namespace rows {

// The five sums of a window, in this order.
enum { kX, kY, kXX, kYY, kXY, kSums };
// The derivatives of the value by them, in this order.
enum { kDX, kDXX, kDXY, kDY, kDYY, kDerivatives };

// Rows of doubles begin at a cache line and lie between zeros, as many as the
// usual windows reach.
constexpr int64_t kPad = 8;

template <typename T>
[[gnu::always_inline]] inline void AddProductsOf(
    const T* __restrict x, const T* __restrict y, double mean_x, double mean_y,
    double sign, int64_t width, int64_t pitch, double* __restrict sums) {
  double* const __restrict sx = sums + kX * pitch;
  double* const __restrict sy = sums + kY * pitch;
  double* const __restrict sxx = sums + kXX * pitch;
  double* const __restrict syy = sums + kYY * pitch;
  double* const __restrict sxy = sums + kXY * pitch;
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
    double mean_y, int64_t width, int64_t pitch, double* __restrict sums) {
  double* const __restrict sx = sums + kX * pitch;
  double* const __restrict sy = sums + kY * pitch;
  double* const __restrict sxx = sums + kXX * pitch;
  double* const __restrict syy = sums + kYY * pitch;
  double* const __restrict sxy = sums + kXY * pitch;
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

// Two slices at the same distance from a window's centre.
template <typename T>
[[gnu::always_inline]] inline void AddPairProductsOf(
    const T* __restrict x_one, const T* __restrict y_one,
    const T* __restrict x_two, const T* __restrict y_two, double mean_x,
    double mean_y, double tap, int64_t width, int64_t pitch,
    double* __restrict sums) {
  double* const __restrict sx = sums + kX * pitch;
  double* const __restrict sy = sums + kY * pitch;
  double* const __restrict sxx = sums + kXX * pitch;
  double* const __restrict syy = sums + kYY * pitch;
  double* const __restrict sxy = sums + kXY * pitch;
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
[[gnu::always_inline]] inline void WeighProductsOf(const T* const* x_rows,
                                                   const T* const* y_rows,
                                                   double mean_x, double mean_y,
                                                   const double* taps,
                                                   int64_t width, int64_t pitch,
                                                   double* __restrict sums) {
  double* const __restrict sx = sums + kX * pitch;
  double* const __restrict sy = sums + kY * pitch;
  double* const __restrict sxx = sums + kXX * pitch;
  double* const __restrict syy = sums + kYY * pitch;
  double* const __restrict sxy = sums + kXY * pitch;
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

// The same of rows 0 to 10 and of rows 1 to 11: most of the time goes into
// reading them.
MIR_TARGET_CLONES void WeighPairsTwice(const double* const* rows,
                                       const double* taps, int64_t count,
                                       double* __restrict first,
                                       double* __restrict second) {
  const double* row[2 * kUsualRadius + 2];
  double tap[kUsualRadius + 1];
  for (int k = 0; k <= 2 * kUsualRadius + 1; ++k) row[k] = rows[k];
  for (int k = 0; k <= kUsualRadius; ++k) tap[k] = taps[kUsualRadius + k];
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    double sum = tap[0] * row[kUsualRadius][i];
    double next = tap[0] * row[kUsualRadius + 1][i];
#pragma GCC unroll 5
    for (int k = 1; k <= kUsualRadius; ++k) {
      sum += tap[k] * (row[kUsualRadius - k][i] + row[kUsualRadius + k][i]);
      next += tap[k] *
              (row[kUsualRadius + 1 - k][i] + row[kUsualRadius + 1 + k][i]);
    }
    first[i] = sum;
    second[i] = next;
  }
}

// As Box, with weights: taps[radius] is the middle one.
MIR_TARGET_CLONES void TapRow(const double* __restrict in,
                              const double* __restrict taps, int64_t width,
                              int64_t radius, double* __restrict scratch,
                              double* __restrict out) {
  const double middle = taps[radius];
  if (radius == kUsualRadius) {
    double tap[kUsualRadius + 1];
    for (int k = 1; k <= kUsualRadius; ++k) tap[k] = taps[kUsualRadius + k];
    for (int64_t w = 0; w < width; ++w) {
      const double* const at = in + w;
      double sum = middle * at[0];
#pragma GCC unroll 5
      for (int k = 1; k <= kUsualRadius; ++k) sum += tap[k] * (at[-k] + at[k]);
      out[w] = sum;
    }
    return;
  }
  for (int64_t i = 0; i < radius; ++i) scratch[i] = 0;
  for (int64_t w = 0; w < width; ++w) scratch[radius + w] = in[w];
  for (int64_t i = radius + width; i < width + 2 * radius; ++i) scratch[i] = 0;
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
                                                int64_t width, int64_t pitch,
                                                int64_t rows,
                                                double* __restrict values) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t w = 0; w < width; ++w) values[row * pitch + w] *= weight[w];
  }
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

// Sums over the nine voxels around each: of two, four and eight neighbours, and
// the ninth. `in` lies between kPad zeros, after which 16 more numbers can be
// read; `scratch` holds width + 8; `out` is written to the end of its last
// line.
[[gnu::always_inline]] inline void BoxNineOf(const double* __restrict in,
                                             int64_t width,
                                             double* __restrict scratch,
                                             double* __restrict out) {
  const double* const __restrict first = in - 4;
  for (int64_t w = 0; w < width + 7; ++w) scratch[w] = first[w] + first[w + 1];
#pragma GCC ivdep
  for (int64_t w = 0; w < width + 5; ++w) scratch[w] += scratch[w + 2];
  for (int64_t w = 0; w < width; ++w) {
    out[w] = (scratch[w] + scratch[w + 4]) + first[w + 8];
  }
}
#ifdef MIR_HAS_TARGETS
__attribute__((target("default"))) void BoxNine(const double* in, int64_t width,
                                                double* scratch, double* out) {
  BoxNineOf(in, width, scratch, out);
}
__attribute__((target("avx2"))) void BoxNine(const double* in, int64_t width,
                                             double* scratch, double* out) {
  BoxNineOf(in, width, scratch, out);
}
// The same in registers, since loads that cross a line take twice as long.
__attribute__((target("avx512f"))) void BoxNine(const double* in, int64_t width,
                                                double*, double* out) {
  typedef double Line __attribute__((vector_size(64), may_alias));
  typedef double Four __attribute__((vector_size(64), may_alias, aligned(32)));
  const Four* const lines = reinterpret_cast<const Four*>(in - 4);
  Line* const sums = reinterpret_cast<Line*>(out);
  Line here = lines[0], next = lines[1], after = lines[2];
  Line two = here + __builtin_shufflevector(here, next, 1, 2, 3, 4, 5, 6, 7, 8);
  Line next_two =
      next + __builtin_shufflevector(next, after, 1, 2, 3, 4, 5, 6, 7, 8);
  Line four =
      two + __builtin_shufflevector(two, next_two, 2, 3, 4, 5, 6, 7, 8, 9);
  for (int64_t line = 0; 8 * line < width; ++line) {
    const Line last = lines[line + 3];
    const Line after_two =
        after + __builtin_shufflevector(after, last, 1, 2, 3, 4, 5, 6, 7, 8);
    const Line next_four =
        next_two +
        __builtin_shufflevector(next_two, after_two, 2, 3, 4, 5, 6, 7, 8, 9);
    const Line eight = four + __builtin_shufflevector(four, next_four, 4, 5, 6,
                                                      7, 8, 9, 10, 11);
    sums[line] = eight + next;
    next = after;
    after = last;
    next_two = after_two;
    four = next_four;
  }
}
#else
void BoxNine(const double* in, int64_t width, double* scratch, double* out) {
  BoxNineOf(in, width, scratch, out);
}
#endif

// Sums over the 2 * radius + 1 voxels around each; zeros outside. `scratch`
// holds width + 2 * radius. Sums of 2, 4, 8, ... neighbours are built in place,
// and those that the binary digits of the window's width name are added up.
MIR_TARGET_CLONES void Box(const double* __restrict in, int64_t width,
                           int64_t radius, double* __restrict scratch,
                           double* __restrict out) {
  const int64_t window = 2 * radius + 1;
  const int64_t padded = width + 2 * radius;
  for (int64_t i = 0; i < radius; ++i) scratch[i] = 0;
  for (int64_t w = 0; w < width; ++w) scratch[radius + w] = in[w];
  for (int64_t i = radius + width; i < padded; ++i) scratch[i] = 0;
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

// Where and how a row of windows is compared.
struct Windows {
  const double* sums;  // [kSums, pitch]
  const double* inverse_count_w;
  double inverse_count_dh;  // 1 / n is this times inverse_count_w.
  double floor_x, floor_y;
  int64_t width, pitch;
  bool to_x, to_y;  // Which derivatives are wanted.
  bool to_floors;   // Then those by both images' sums and variances.
};

// Of each window: its value, the derivatives by the sums, [kDerivatives,
// pitch], and the derivatives by the two variances.
struct Compared {
  double* value;
  double* derivatives;
  double* by_var_x;
  double* by_var_y;
};

template <bool squared, bool to_x, bool to_y, bool to_floors>
[[gnu::always_inline]] inline void CorrelateRow(
    const Windows& at, const CorrelationFormula& formula, const Compared& out) {
  const int64_t pitch = at.pitch;
  const double* const __restrict sums = at.sums;
  const double* const __restrict inverse_count_w = at.inverse_count_w;
  double* const __restrict value = out.value;
  double* const __restrict derivatives = out.derivatives;
  double* const __restrict by_var_x = out.by_var_x;
  double* const __restrict by_var_y = out.by_var_y;
  const double per_dh = at.inverse_count_dh;
  const double floor_x = at.floor_x, floor_y = at.floor_y;
  const double smallest_variance = formula.smallest_variance;
  const double add = formula.add, smallest_den = formula.smallest_den;
  const double s_of_n = formula.per_voxel ? 1 : 0;
  const double s_alone = 1 - s_of_n;
#pragma GCC ivdep
  for (int64_t w = 0; w < at.width; ++w) {
    const double x = sums[kX * pitch + w], y = sums[kY * pitch + w];
    const double inverse_n = per_dh * inverse_count_w[w];
    const double s = s_alone + s_of_n * inverse_n;
    const double mean_x = x * inverse_n, mean_y = y * inverse_n;
    const double cov = s * (sums[kXY * pitch + w] - x * mean_y);
    double var_x = s * (sums[kXX * pitch + w] - x * mean_x);
    double var_y = s * (sums[kYY * pitch + w] - y * mean_y);
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
    if (to_floors) {
      by_var_x[w] = by_x;
      by_var_y[w] = by_y;
    }
    if (to_x) {
      derivatives[kDX * pitch + w] = -s * (mean_y * by_cov + 2 * mean_x * by_x);
      derivatives[kDXX * pitch + w] = s * by_x;
    }
    if (to_y) {
      derivatives[kDY * pitch + w] = -s * (mean_x * by_cov + 2 * mean_y * by_y);
      derivatives[kDYY * pitch + w] = s * by_y;
    }
    if (to_x || to_y) derivatives[kDXY * pitch + w] = s * by_cov;
  }
}

// Structural similarity, likewise; without floors.
template <bool to_x, bool to_y>
[[gnu::always_inline]] inline void CompareStructureRow(
    const Windows& at, const CorrelationFormula& formula, const Compared& out) {
  const int64_t pitch = at.pitch;
  const double* const __restrict sums = at.sums;
  const double* const __restrict inverse_count_w = at.inverse_count_w;
  double* const __restrict value = out.value;
  double* const __restrict derivatives = out.derivatives;
  const double per_dh = at.inverse_count_dh;
  const double c1 = formula.c1, c2 = formula.c2;
#pragma GCC ivdep
  for (int64_t w = 0; w < at.width; ++w) {
    const double x = sums[kX * pitch + w], y = sums[kY * pitch + w];
    const double s = per_dh * inverse_count_w[w];
    const double mean_x = x * s, mean_y = y * s;
    const double cov = s * sums[kXY * pitch + w] - mean_x * mean_y;
    const double var_x = s * sums[kXX * pitch + w] - mean_x * mean_x;
    const double var_y = s * sums[kYY * pitch + w] - mean_y * mean_y;
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
    if (to_x) {
      derivatives[kDX * pitch + w] =
          s * (by_top * mean_y - by_bottom * mean_x - mean_y * by_cov -
               2 * mean_x * by_var);
      derivatives[kDXX * pitch + w] = s * by_var;
    }
    if (to_y) {
      derivatives[kDY * pitch + w] =
          s * (by_top * mean_x - by_bottom * mean_y - mean_x * by_cov -
               2 * mean_y * by_var);
      derivatives[kDYY * pitch + w] = s * by_var;
    }
    if (to_x || to_y) derivatives[kDXY * pitch + w] = s * by_cov;
  }
}

template <bool squared>
[[gnu::always_inline]] inline void CorrelateWanted(
    const Windows& at, const CorrelationFormula& formula, const Compared& out) {
  if (at.to_floors) {
    CorrelateRow<squared, true, true, true>(at, formula, out);
  } else if (at.to_x && at.to_y) {
    CorrelateRow<squared, true, true, false>(at, formula, out);
  } else if (at.to_x) {
    CorrelateRow<squared, true, false, false>(at, formula, out);
  } else if (at.to_y) {
    CorrelateRow<squared, false, true, false>(at, formula, out);
  } else {
    CorrelateRow<squared, false, false, false>(at, formula, out);
  }
}
MIR_TARGET_CLONES void CorrelateSquared(const Windows& at,
                                        const CorrelationFormula& formula,
                                        const Compared& out) {
  CorrelateWanted<true>(at, formula, out);
}
MIR_TARGET_CLONES void CorrelatePlain(const Windows& at,
                                      const CorrelationFormula& formula,
                                      const Compared& out) {
  CorrelateWanted<false>(at, formula, out);
}
MIR_TARGET_CLONES void CompareStructure(const Windows& at,
                                        const CorrelationFormula& formula,
                                        const Compared& out) {
  if (at.to_x && at.to_y) {
    CompareStructureRow<true, true>(at, formula, out);
  } else if (at.to_x) {
    CompareStructureRow<true, false>(at, formula, out);
  } else if (at.to_y) {
    CompareStructureRow<false, true>(at, formula, out);
  } else {
    CompareStructureRow<false, false>(at, formula, out);
  }
}

// The gradient to `own`: (linear + 2 square own + product other) factor.
template <typename T>
[[gnu::always_inline]] inline void GradientRowOf(
    const double* __restrict linear, const double* __restrict square,
    const double* __restrict product, const T* __restrict own,
    const T* __restrict other, double mean_own, double mean_other,
    double factor, int64_t width, T* __restrict out) {
  for (int64_t w = 0; w < width; ++w) {
    out[w] = static_cast<T>(factor *
                            (linear[w] + 2 * square[w] * (own[w] - mean_own) +
                             product[w] * (other[w] - mean_other)));
  }
}

#define MIR_FOR_TYPE(T)                                                       \
  MIR_TARGET_CLONES void AddProducts(                                         \
      const T* x, const T* y, double mean_x, double mean_y, double sign,      \
      int64_t width, int64_t pitch, double* sums) {                           \
    AddProductsOf(x, y, mean_x, mean_y, sign, width, pitch, sums);            \
  }                                                                           \
  MIR_TARGET_CLONES void SlideProducts(                                       \
      const T* x_in, const T* y_in, const T* x_out, const T* y_out,           \
      double mean_x, double mean_y, int64_t width, int64_t pitch,             \
      double* sums) {                                                         \
    if (mean_x == 0 && mean_y == 0) {                                         \
      SlideProductsOf(x_in, y_in, x_out, y_out, 0, 0, width, pitch, sums);    \
    } else {                                                                  \
      SlideProductsOf(x_in, y_in, x_out, y_out, mean_x, mean_y, width, pitch, \
                      sums);                                                  \
    }                                                                         \
  }                                                                           \
  MIR_TARGET_CLONES void AddPairProducts(                                     \
      const T* x_one, const T* y_one, const T* x_two, const T* y_two,         \
      double mean_x, double mean_y, double tap, int64_t width, int64_t pitch, \
      double* sums) {                                                         \
    AddPairProductsOf(x_one, y_one, x_two, y_two, mean_x, mean_y, tap, width, \
                      pitch, sums);                                           \
  }                                                                           \
  MIR_TARGET_CLONES void WeighProducts(                                       \
      const T* const* x_rows, const T* const* y_rows, double mean_x,          \
      double mean_y, const double* taps, int64_t width, int64_t pitch,        \
      double* sums) {                                                         \
    if (mean_x == 0 && mean_y == 0) {                                         \
      WeighProductsOf(x_rows, y_rows, 0, 0, taps, width, pitch, sums);        \
    } else {                                                                  \
      WeighProductsOf(x_rows, y_rows, mean_x, mean_y, taps, width, pitch,     \
                      sums);                                                  \
    }                                                                         \
  }                                                                           \
  MIR_TARGET_CLONES void WeightRows(const T* weight, int64_t width,           \
                                    int64_t pitch, int64_t rows,              \
                                    double* values) {                         \
    WeightRowsOf(weight, width, pitch, rows, values);                         \
  }                                                                           \
  MIR_TARGET_CLONES void GradientRow(                                         \
      const double* linear, const double* square, const double* product,      \
      const T* own, const T* other, double mean_own, double mean_other,       \
      double factor, int64_t width, T* out) {                                 \
    GradientRowOf(linear, square, product, own, other, mean_own, mean_other,  \
                  factor, width, out);                                        \
  }
MIR_FOR_TYPE(float)
MIR_FOR_TYPE(double)
#undef MIR_FOR_TYPE

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

// out = scale out + slope (image - mean)
template <typename T>
[[gnu::always_inline]] inline void ScaleOf(const T* __restrict image,
                                           int64_t count, double scale,
                                           double slope, double mean,
                                           T* __restrict out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<T>(scale * out[i] + slope * (image[i] - mean));
  }
}
MIR_TARGET_CLONES void Scale(const float* image, int64_t count, double scale,
                             double slope, double mean, float* out) {
  ScaleOf(image, count, scale, slope, mean, out);
}
MIR_TARGET_CLONES void Scale(const double* image, int64_t count, double scale,
                             double slope, double mean, double* out) {
  ScaleOf(image, count, scale, slope, mean, out);
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

// Doubles of one cache line.
constexpr int64_t kLine = 8;

int64_t InLines(int64_t count) { return (count + kLine - 1) / kLine * kLine; }

// Memory of one thread, kept between calls: fresh pages cost more than sums.
// Begins at a cache line.
double* Workspace(int64_t count) {
  static thread_local std::vector<double> memory;
  if (memory.size() < static_cast<size_t>(count + kLine)) {
    memory.resize(count + kLine);
  }
  void* begin = memory.data();
  size_t space = memory.size() * sizeof(double);
  return static_cast<double*>(
      std::align(kLine * sizeof(double), count * sizeof(double), begin, space));
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
              double factor, T* grad_x, T* grad_y)
      : x_(x),
        y_(y),
        weight_(weight),
        factor_(factor),
        grad_x_(grad_x),
        grad_y_(grad_y),
        formula_(formula),
        x_stats_(x_stats),
        y_stats_(y_stats),
        depth_(shape.size[0]),
        height_(shape.size[1]),
        width_(shape.size[2]),
        pitch_(InLines(width_) + rows::kPad),
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
        slabs_(depth_, std::max<int64_t>(80, 4 * radius_d_)),
        tiles_(height_, std::max<int64_t>(40, 4 * radius_h_)),
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

  int64_t Voxel(int64_t volume, int64_t d, int64_t h) const {
    return ((volume * depth_ + d) * height_ + h) * width_;
  }

  void SumRowAlongD(int64_t volume, int64_t d, int64_t h, bool first,
                    double* sums) const;
  void WeighRowAlongD(int64_t volume, int64_t d, int64_t h, double* sums) const;

  // Along w, of each of `kinds` rows.
  void SumRowsAlongW(const double* in, int64_t kinds, double* scratch,
                     double* out) const {
    for (int64_t kind = 0; kind < kinds; ++kind) {
      const int64_t at = kind * pitch_;
      if (weighted_) {
        rows::TapRow(in + at, taps_w_.data(), width_, radius_w_, scratch,
                     out + at);
      } else if (radius_w_ == 4) {
        rows::BoxNine(in + at, width_, scratch, out + at);
      } else {
        rows::Box(in + at, width_, radius_w_, scratch, out + at);
      }
    }
  }

  const T* const x_;
  const T* const y_;
  const T* const weight_;
  const double factor_;
  T* const grad_x_;
  T* const grad_y_;
  const CorrelationFormula& formula_;
  const std::vector<ImageStatistics>& x_stats_;
  const std::vector<ImageStatistics>& y_stats_;
  const int64_t depth_, height_, width_, pitch_;
  const int64_t radius_d_, radius_h_, radius_w_;
  const std::vector<double> taps_d_, taps_h_, taps_w_;
  const bool weighted_;
  const Split slabs_, tiles_;
  const std::vector<double> inverse_d_, inverse_h_;
  std::vector<double> inverse_w_;
  int first_, last_;
};

// Brings the sums along d, of row h, from slice d - 1 to slice d.
template <typename T>
void Correlation<T>::SumRowAlongD(int64_t volume, int64_t d, int64_t h,
                                  bool first, double* sums) const {
  const double mean_x = x_stats_[volume].mean;
  const double mean_y = y_stats_[volume].mean;
  const auto add = [&](int64_t slice, double sign) {
    const int64_t at = Voxel(volume, slice, h);
    rows::AddProducts(x_ + at, y_ + at, mean_x, mean_y, sign, width_, pitch_,
                      sums);
  };
  if (first) {
    std::fill(sums, sums + rows::kSums * pitch_, 0.0);
    const Range window = Range{d, d + 1}.Grown(radius_d_, depth_);
    for (int64_t slice = window.begin; slice < window.end; ++slice) {
      add(slice, 1);
    }
    return;
  }
  const int64_t in = d + radius_d_;
  const int64_t out = d - radius_d_ - 1;
  if (in < depth_ && out >= 0) {
    const int64_t at = Voxel(volume, in, h), from = Voxel(volume, out, h);
    rows::SlideProducts(x_ + at, y_ + at, x_ + from, y_ + from, mean_x, mean_y,
                        width_, pitch_, sums);
  } else if (in < depth_) {
    add(in, 1);
  } else if (out >= 0) {
    add(out, -1);
  }
}

// The weighted sums along d, of row h, at slice d.
template <typename T>
void Correlation<T>::WeighRowAlongD(int64_t volume, int64_t d, int64_t h,
                                    double* sums) const {
  const double mean_x = x_stats_[volume].mean;
  const double mean_y = y_stats_[volume].mean;
  if (radius_d_ == rows::kUsualRadius && d >= radius_d_ &&
      d + radius_d_ < depth_) {
    const T* x_rows[2 * rows::kUsualRadius + 1];
    const T* y_rows[2 * rows::kUsualRadius + 1];
    for (int64_t k = 0; k <= 2 * radius_d_; ++k) {
      const int64_t at = Voxel(volume, d - radius_d_ + k, h);
      x_rows[k] = x_ + at;
      y_rows[k] = y_ + at;
    }
    rows::WeighProducts(x_rows, y_rows, mean_x, mean_y, taps_d_.data(), width_,
                        pitch_, sums);
    return;
  }
  const auto add = [&](int64_t slice, double tap) {
    const int64_t at = Voxel(volume, slice, h);
    rows::AddProducts(x_ + at, y_ + at, mean_x, mean_y, tap, width_, pitch_,
                      sums);
  };
  std::fill(sums, sums + rows::kSums * pitch_, 0.0);
  add(d, taps_d_[radius_d_]);
  for (int64_t k = 1; k <= radius_d_; ++k) {
    const double tap = taps_d_[radius_d_ + k];
    const int64_t before = d - k, after = d + k;
    if (before >= 0 && after < depth_) {
      const int64_t one = Voxel(volume, before, h);
      const int64_t two = Voxel(volume, after, h);
      rows::AddPairProducts(x_ + one, y_ + one, x_ + two, y_ + two, mean_x,
                            mean_y, tap, width_, pitch_, sums);
    } else if (before >= 0 || after < depth_) {
      add(before >= 0 ? before : after, tap);
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

// The same for one row or two, whose sums lie behind each other.
template <typename Row>
void WeighRows(const Row& row, const std::vector<double>& taps, int64_t radius,
               const Range& of, const Range& range, int64_t count,
               double* sums) {
  if (of.size() == 2 && radius == rows::kUsualRadius &&
      of.begin - radius >= range.begin && of.end + radius <= range.end) {
    const double* near[2 * rows::kUsualRadius + 2];
    for (int64_t k = 0; k <= 2 * radius + 1; ++k) {
      near[k] = row(of.begin - radius + k);
    }
    rows::WeighPairsTwice(near, taps.data(), count, sums, sums + count);
    return;
  }
  for (int64_t h = of.begin; h < of.end; ++h) {
    WeighRows(row, taps, radius, h, range, count,
              sums + (h - of.begin) * count);
  }
}

// Brings a running sum of rows from h - 1 to h, where row `in` comes and row
// `out` leaves if they are in `range`.
template <typename Row>
void SlideRows(const Row& row, int64_t in, int64_t out, const Range& range,
               int64_t count, double* sums) {
  const bool comes = in < range.end, leaves = out >= range.begin;
  if (comes && leaves) {
    rows::Slide(row(in), row(out), count, sums);
  } else if (comes) {
    rows::Add(row(in), count, sums);
  } else if (leaves) {
    rows::Subtract(row(out), count, sums);
  }
}

// One slab of slices times one tile of rows, row by row: the windows' sums
// along d, h and w, the values and derivatives, and of those again the sums
// along w, h and d. Each sum lags a radius behind what it adds up.
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

  const int64_t sums_stride = rows::kSums * pitch_;
  const int64_t kinds = gradient ? last_ - first_ + 1 : 0;
  const int64_t kind_stride = kinds * pitch_;
  const int64_t plane = tile.size() * kind_stride;
  // Weighted sums are taken for two rows or slices at once.
  const int64_t step = weighted_ ? 2 : 1;
  const int64_t ring_length = 2 * radius_d_ + step;
  // Rows of which the sums along h are still to come. Sums along d run from
  // slice to slice, so all of theirs stay; weighted ones are computed anew.
  const int64_t boxed_length = 2 * radius_h_ + 2;
  const int64_t columns_length =
      weighted_ ? boxed_length : columns_range.size();

  constexpr int64_t kPad = rows::kPad;
  const int64_t scratch_size = InLines(width_ + 2 * radius_w_) + 2 * kPad;
  const int64_t totals_size = weighted_ ? step * kind_stride : plane;
  const int64_t size = (columns_length + step + 1) * sums_stride +
                       scratch_size + (3 + rows::kDerivatives) * pitch_ + kPad +
                       (boxed_length + 1) * kind_stride + ring_length * plane +
                       totals_size;
  double* memory = Workspace(size);
  std::fill(memory, memory + size, 0.0);
  const auto take = [&memory](int64_t count) {
    double* const taken = memory;
    memory += count;
    return taken;
  };
  take(kPad);
  double* const along_h = take(step * sums_stride);
  double* const derivatives = take(rows::kDerivatives * pitch_);
  const rows::Compared compared = {take(pitch_), derivatives, take(pitch_),
                                   take(pitch_)};
  double* const columns = take(columns_length * sums_stride);
  double* const sums = take(sums_stride);
  double* const scratch = take(scratch_size);
  double* const boxed = take(boxed_length * kind_stride);
  double* const derivatives_along_h = take(kind_stride);
  double* const ring = take(ring_length * plane);
  double* const totals = take(totals_size);

  const ImageStatistics& x_stats = x_stats_[volume];
  const ImageStatistics& y_stats = y_stats_[volume];
  const bool to_floors = gradient && (x_stats.floor != 0 || y_stats.floor != 0);
  const auto compare =
      formula_.kind == CorrelationKind::kSquared ? rows::CorrelateSquared
      : formula_.kind == CorrelationKind::kPlain ? rows::CorrelatePlain
                                                 : rows::CompareStructure;
  const auto column = [&](int64_t h) {
    return columns + (h - columns_range.begin) % columns_length * sums_stride;
  };
  const auto boxed_row = [&](int64_t h) {
    return boxed + h % boxed_length * kind_stride;
  };

  CorrelationSums result;
  // The windows of row h of slice d, from their sums along d and h.
  const auto compare_row = [&](int64_t d, int64_t h, const double* own_sums) {
    SumRowsAlongW(own_sums, rows::kSums, scratch, sums);
    compare({sums, inverse_w_.data(), inverse_d_[d] * inverse_h_[h],
             x_stats.floor, y_stats.floor, width_, pitch_, grad_x_ != nullptr,
             grad_y_ != nullptr, to_floors},
            formula_, compared);
    if (weight_) {
      const T* const weight = weight_ + Voxel(volume, d, h);
      rows::WeightRows(weight, width_, pitch_, 1, compared.value);
      rows::WeightRows(weight, width_, pitch_, kinds,
                       derivatives + first_ * pitch_);
      rows::WeightRows(weight, width_, pitch_, 2 * to_floors,
                       compared.by_var_x);
    }
    const bool own =
        d >= slab.begin && d < slab.end && h >= tile.begin && h < tile.end;
    if (own) {
      result.value += rows::Total(compared.value, width_);
      if (to_floors) {
        result.floor_x += rows::Total(compared.by_var_x, width_);
        result.floor_y += rows::Total(compared.by_var_y, width_);
      }
    }
    SumRowsAlongW(derivatives + first_ * pitch_, kinds, scratch, boxed_row(h));
  };
  // The gradient in row h of slice d, from the derivatives' sums.
  const auto finish_row = [&](int64_t d, int64_t h,
                              const double* sums_along_d) {
    const int64_t voxel = Voxel(volume, d, h);
    const auto kind = [&](int which) {
      return sums_along_d + (which - first_) * pitch_;
    };
    if (grad_x_) {
      rows::GradientRow(kind(rows::kDX), kind(rows::kDXX), kind(rows::kDXY),
                        x_ + voxel, y_ + voxel, x_stats.mean, y_stats.mean,
                        factor_, width_, grad_x_ + voxel);
    }
    if (grad_y_) {
      rows::GradientRow(kind(rows::kDY), kind(rows::kDYY), kind(rows::kDXY),
                        y_ + voxel, x_ + voxel, y_stats.mean, x_stats.mean,
                        factor_, width_, grad_y_ + voxel);
    }
  };
  const auto ring_row = [&](int64_t d, int64_t h) {
    return ring + d % ring_length * plane + (h - tile.begin) * kind_stride;
  };

  const auto total_row = [&](int64_t h) {
    return totals + (h - tile.begin) * kind_stride;
  };

  int64_t next = slab.begin;  // The slice to finish.
  const int64_t end = gradient ? slab.end + radius_d_ : slab.end;
  for (int64_t d = slices.begin; d < end; ++d) {
    std::fill(along_h, along_h + step * sums_stride, 0.0);
    std::fill(derivatives_along_h, derivatives_along_h + kind_stride, 0.0);
    const int64_t end_h = gradient ? tile.end + radius_h_ : tile.end;
    int64_t in = columns_range.begin;  // The row that comes.
    for (int64_t begin = windows.begin; d < depth_ && begin < end_h;
         begin += step) {
      const Range now = {begin, std::min(begin + step, end_h)};
      for (; in < now.end + radius_h_; ++in) {
        if (in < columns_range.end) {
          if (weighted_) {
            WeighRowAlongD(volume, d, in, column(in));
          } else {
            SumRowAlongD(volume, d, in, d == slices.begin, column(in));
          }
        }
        if (!weighted_) {
          SlideRows(column, in, in - 2 * radius_h_ - 1, columns_range,
                    sums_stride, along_h);
        }
      }
      const Range compared_now = {now.begin, std::min(now.end, windows.end)};
      if (weighted_) {
        WeighRows(column, taps_h_, radius_h_, compared_now, columns_range,
                  sums_stride, along_h);
      }
      for (int64_t h = compared_now.begin; h < compared_now.end; ++h) {
        compare_row(d, h, along_h + (h - now.begin) * sums_stride);
      }
      if (!gradient) continue;
      if (!weighted_) {
        SlideRows(boxed_row, begin, begin - 2 * radius_h_ - 1, windows,
                  kind_stride, derivatives_along_h);
      }
      // The rows of which all windows are there.
      const Range done = {std::max(now.begin - radius_h_, tile.begin),
                          now.end - radius_h_};
      if (weighted_) {
        WeighRows(boxed_row, taps_h_, radius_h_, done, windows, kind_stride,
                  ring_row(d, done.begin));
        continue;
      }
      for (int64_t h = done.begin; h < done.end; ++h) {
        rows::SlideAndKeep(derivatives_along_h, ring_row(d, h), kind_stride,
                           total_row(h));
        if (d - radius_d_ >= slab.begin) {
          finish_row(d - radius_d_, h, total_row(h));
        }
      }
    }
    if (!gradient) continue;
    if (!weighted_) {
      // Beyond the last slice windows only leave the ring.
      for (int64_t h = tile.begin; d >= depth_ && h < tile.end; ++h) {
        rows::Subtract(ring_row(d, h), kind_stride, total_row(h));
        finish_row(d - radius_d_, h, total_row(h));
      }
      continue;
    }
    // The slices of which all windows are there.
    const Range finished = {next, d - radius_d_ + 1};
    if (finished.size() < step && d + 1 < end) continue;
    for (int64_t h = tile.begin; h < tile.end; ++h) {
      WeighRows([&](int64_t slice) { return ring_row(slice, h); }, taps_d_,
                radius_d_, finished, Range{0, depth_}, kind_stride, totals);
      for (int64_t slice = finished.begin; slice < finished.end; ++slice) {
        finish_row(slice, h, totals + (slice - finished.begin) * kind_stride);
      }
    }
    next = finished.end;
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
    const std::vector<ImageStatistics>& y_stats, const T* weight, double factor,
    T* grad_x, T* grad_y) {
  const Correlation<T> correlation(x, y, shape, formula, x_stats, y_stats,
                                   weight, factor, grad_x, grad_y);
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
void ScaleGradient(const T* image, int64_t count, double scale, double slope,
                   double mean, T* gradient) {
  const Split chunks(count, kChunk);
  at::parallel_for(0, chunks.parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const Range range = chunks[part];
      rows::Scale(image + range.begin, range.size(), scale, slope, mean,
                  gradient + range.begin);
    }
  });
}

#define MIR_INSTANTIATE(T)                                                    \
  template std::vector<ImageStatistics> MeasureImages<T>(const T*, int64_t,   \
                                                         int64_t);            \
  template std::vector<CorrelationSums> CorrelateWindows<T>(                  \
      const T*, const T*, const CorrelationShape&, const CorrelationFormula&, \
      const std::vector<ImageStatistics>&,                                    \
      const std::vector<ImageStatistics>&, const T*, double, T*, T*);         \
  template void ScaleGradient<T>(const T*, int64_t, double, double, double, T*);
MIR_INSTANTIATE(float)
MIR_INSTANTIATE(double)
#undef MIR_INSTANTIATE

}  // namespace mir::losses::kernels
