#include "mir/geometry/kernels/linear_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "mir/base/target_clones.h"

namespace mir::geometry::kernels {

template <typename T>
LinearAxis<T>::LinearAxis(int64_t size, int64_t stride, bool mir, bool clamp)
    // MIR's formula has no value along an axis of one voxel.
    : scale(mir && size > 1 ? T(1) / T(size - 1) : T(0)),
      offset(mir && size > 1 ? T(0.5) : T(0)),
      slope(mir && size > 1 ? T(size) / T(size - 1) : T(1)),
      last(T(size - 1)),
      last_base(T(std::max<int64_t>(size - 2, 0))),
      clamp(clamp),
      stride(static_cast<int32_t>(stride)),
      step(static_cast<int32_t>(size > 1 ? stride : 0)) {}

template struct LinearAxis<float>;
template struct LinearAxis<double>;

template <typename T>
LinearRow<T>::LinearRow(int64_t width) : index(width), zeros(width) {
  for (auto* const group : {&low, &high, &low_slope, &high_slope}) {
    for (std::vector<T>& values : *group) values.resize(width);
  }
}

template struct LinearRow<float>;
template struct LinearRow<double>;

namespace {

#define MIR_INLINE [[gnu::always_inline]] inline

template <typename T>
using Bits = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;

// Not 0 if `value` is NaN or infinite.
template <typename T>
MIR_INLINE Bits<T> NotFinite(T value) {
  const T zero = value - value;
  Bits<T> bits;
  std::memcpy(&bits, &zero, sizeof(bits));
  return bits;
}

// One axis of one voxel: sets the weights, and returns the low neighbour.
// Comparisons are written so that NaN ends at 0.
template <bool kClamp, bool kSlopes, typename T>
MIR_INLINE int32_t ReadAxis(const LinearAxis<T>& axis, T voxel, T* low, T* high,
                            T* low_slope, T* high_slope) {
  T position = voxel + (voxel * axis.scale - axis.offset);
  // A clamped sample does not move with its displacement.
  const bool moves =
      kClamp ? (position > 0) & (position < axis.last) : position >= -1;
  if (kClamp) {
    position = position > 0 ? position : T(0);
    position = position < axis.last ? position : axis.last;
  }
  T base = position > 0 ? position : T(0);
  base = base < axis.last_base ? base : axis.last_base;
  const auto index = static_cast<int32_t>(base);
  const T offset = position - static_cast<T>(index);
  const T from_low = 1 - std::abs(offset);
  const T beyond = 2 - offset;
  const T from_high = offset < beyond ? offset : beyond;
  *low = from_low > 0 ? from_low : T(0);
  *high = from_high > 0 ? from_high : T(0);
  if (kSlopes) {
    const T falls = moves ? T(-1) : T(0);
    const T rises = moves ? T(1) : T(0);
    const T at_low = offset >= 0 ? falls : rises;
    const T at_high = offset >= 1 ? falls : rises;
    *low_slope = offset < 1 ? at_low : T(0);
    *high_slope = (offset >= 0) & (offset < 2) ? at_high : T(0);
  }
  return index;
}

template <bool kClamp, bool kSlopes, typename T>
MIR_INLINE RowReach FillRowOf(const LinearAxes<T>& axes,
                              const RowShift<T>& shift, const RowStart& start,
                              LinearRow<T>* row) {
  const auto width = static_cast<int32_t>(row->index.size());
  const T* const by_d = shift[0];
  const T* const by_h = shift[1];
  const T* const by_w = shift[2];
  int32_t* const index = row->index.data();
  T *low[3], *high[3], *low_slope[3], *high_slope[3];
  for (int k = 0; k < 3; ++k) {
    low[k] = row->low[k].data();
    high[k] = row->high[k].data();
    low_slope[k] = row->low_slope[k].data();
    high_slope[k] = row->high_slope[k].data();
  }
  const LinearAxis<T> d_axis = axes[0], h_axis = axes[1], w_axis = axes[2];
  const T d = static_cast<T>(start.d), h = static_cast<T>(start.h);
  const int32_t increment = start.increment;
  int32_t lowest = std::numeric_limits<int32_t>::max(), highest = 0;
  Bits<T> not_finite = 0;
#pragma GCC ivdep
  for (int32_t i = 0; i < width; ++i) {
    const T u = by_d[i], v = by_h[i], w = by_w[i];
    not_finite |= NotFinite(u) | NotFinite(v) | NotFinite(w);
    T unused;
    const auto read = [&](int k, const LinearAxis<T>& axis, T voxel)
        __attribute__((always_inline)) {
      return ReadAxis<kClamp, kSlopes>(axis, voxel, &low[k][i], &high[k][i],
                                       kSlopes ? &low_slope[k][i] : &unused,
                                       kSlopes ? &high_slope[k][i] : &unused);
    };
    const int32_t at = read(0, d_axis, d + u) * d_axis.stride +
                       read(1, h_axis, h + v) * h_axis.stride +
                       read(2, w_axis, static_cast<T>(i * increment) + w);
    index[i] = at;
    lowest = at < lowest ? at : lowest;
    highest = at > highest ? at : highest;
  }
  for (int k = 0; k < 3; ++k) {
    if (axes[k].step != 0) continue;
    std::fill_n(high[k], width, T(0));
    std::fill_n(high_slope[k], width, T(0));
  }
  return {lowest, highest, not_finite == 0};
}

template <typename T>
MIR_INLINE RowReach FillRowAny(const LinearAxes<T>& axes,
                               const RowShift<T>& shift, const RowStart& start,
                               bool slopes, LinearRow<T>* row) {
  if (axes[2].clamp) {
    return slopes ? FillRowOf<true, true>(axes, shift, start, row)
                  : FillRowOf<true, false>(axes, shift, start, row);
  }
  return slopes ? FillRowOf<false, true>(axes, shift, start, row)
                : FillRowOf<false, false>(axes, shift, start, row);
}

// The eight neighbours of index 0, by the bits (d, h, w) for the high one.
template <typename T>
struct Neighbours {
  const T* of[8];

  MIR_INLINE Neighbours(const T* source, const LinearAxes<T>& axes) {
    for (int k = 0; k < 8; ++k) {
      of[k] = source + (k & 4 ? axes[0].step : 0) + (k & 2 ? axes[1].step : 0) +
              (k & 1 ? axes[2].step : 0);
    }
  }
};

template <typename T>
MIR_INLINE void InterpolateAny(const T* source, const LinearAxes<T>& axes,
                               const LinearRow<T>& row, T constant, T* out) {
  const Neighbours<T> at(source, axes);
  const int32_t* const index = row.index.data();
  const T* const d_low = row.low[0].data();
  const T* const d_high = row.high[0].data();
  const T* const h_low = row.low[1].data();
  const T* const h_high = row.high[1].data();
  const T* const w_low = row.low[2].data();
  const T* const w_high = row.high[2].data();
  const auto width = static_cast<int32_t>(row.index.size());
  int32_t on_voxel = 0;
#pragma GCC ivdep
  for (int32_t i = 0; i < width; ++i) {
    const int32_t k = index[i];
    const T d0 = d_low[i], d1 = d_high[i];
    const T h0 = h_low[i], h1 = h_high[i];
    const T w0 = w_low[i], w1 = w_high[i];
    T line[4];
    for (int n = 0; n < 4; ++n) {
      line[n] = w0 * (at.of[2 * n][k] - constant) +
                w1 * (at.of[2 * n + 1][k] - constant);
    }
    out[i] = constant + (d0 * (h0 * line[0] + h1 * line[1]) +
                         d1 * (h0 * line[2] + h1 * line[3]));
    on_voxel |= ((d0 == 1) | (d1 == 1)) & ((h0 == 1) | (h1 == 1)) &
                ((w0 == 1) | (w1 == 1));
  }
  if (!on_voxel) return;
  // Keeps every bit: of -0.0, and beside a neighbour that is not finite.
  for (int32_t i = 0; i < width; ++i) {
    const bool d1 = d_high[i] == 1, h1 = h_high[i] == 1, w1 = w_high[i] == 1;
    if ((d1 || d_low[i] == 1) && (h1 || h_low[i] == 1) &&
        (w1 || w_low[i] == 1)) {
      out[i] = at.of[(d1 ? 4 : 0) + (h1 ? 2 : 0) + (w1 ? 1 : 0)][index[i]];
    }
  }
}

template <bool kFirst, typename T>
MIR_INLINE void DisplacementGradientOf(const T* source,
                                       const LinearAxes<T>& axes,
                                       const LinearRow<T>& row,
                                       const T* gradient, T constant,
                                       const std::array<T*, 3>& out) {
  const Neighbours<T> at(source, axes);
  const int32_t* const index = row.index.data();
  const T* const d_low = row.low[0].data();
  const T* const d_high = row.high[0].data();
  const T* const h_low = row.low[1].data();
  const T* const h_high = row.high[1].data();
  const T* const w_low = row.low[2].data();
  const T* const w_high = row.high[2].data();
  const T* const d_falls = row.low_slope[0].data();
  const T* const d_rises = row.high_slope[0].data();
  const T* const h_falls = row.low_slope[1].data();
  const T* const h_rises = row.high_slope[1].data();
  const T* const w_falls = row.low_slope[2].data();
  const T* const w_rises = row.high_slope[2].data();
  const T d_slope = axes[0].slope, h_slope = axes[1].slope,
          w_slope = axes[2].slope;
  T *const out_d = out[0], *const out_h = out[1], *const out_w = out[2];
  const auto width = static_cast<int32_t>(row.index.size());
#pragma GCC ivdep
  for (int32_t i = 0; i < width; ++i) {
    const int32_t k = index[i];
    T low[4], high[4];
    for (int n = 0; n < 4; ++n) {
      low[n] = at.of[2 * n][k] - constant;
      high[n] = at.of[2 * n + 1][k] - constant;
    }
    const T d0 = d_low[i], d1 = d_high[i];
    const T h0 = h_low[i], h1 = h_high[i];
    const T w0 = w_low[i], w1 = w_high[i];
    const T low_w =
        d0 * (h0 * low[0] + h1 * low[1]) + d1 * (h0 * low[2] + h1 * low[3]);
    const T high_w =
        d0 * (h0 * high[0] + h1 * high[1]) + d1 * (h0 * high[2] + h1 * high[3]);
    T line[4];
    for (int n = 0; n < 4; ++n) line[n] = w0 * low[n] + w1 * high[n];
    const T g = gradient[i];
    const T to_d = g * d_slope *
                   (d_falls[i] * (h0 * line[0] + h1 * line[1]) +
                    d_rises[i] * (h0 * line[2] + h1 * line[3]));
    const T to_h = g * h_slope *
                   (h_falls[i] * (d0 * line[0] + d1 * line[2]) +
                    h_rises[i] * (d0 * line[1] + d1 * line[3]));
    const T to_w = g * w_slope * (w_falls[i] * low_w + w_rises[i] * high_w);
    out_d[i] = kFirst ? to_d : out_d[i] + to_d;
    out_h[i] = kFirst ? to_h : out_h[i] + to_h;
    out_w[i] = kFirst ? to_w : out_w[i] + to_w;
  }
}

template <typename T>
MIR_INLINE void DisplacementGradientAny(
    const T* source, const LinearAxes<T>& axes, const LinearRow<T>& row,
    const T* gradient, T constant, bool first, const std::array<T*, 3>& out) {
  if (first) {
    DisplacementGradientOf<true>(source, axes, row, gradient, constant, out);
  } else {
    DisplacementGradientOf<false>(source, axes, row, gradient, constant, out);
  }
}

}  // namespace

MIR_TARGET_CLONES RowReach FillRow(const LinearAxes<float>& axes,
                                   const RowShift<float>& shift,
                                   const RowStart& start, bool slopes,
                                   LinearRow<float>* row) {
  return FillRowAny(axes, shift, start, slopes, row);
}
MIR_TARGET_CLONES RowReach FillRow(const LinearAxes<double>& axes,
                                   const RowShift<double>& shift,
                                   const RowStart& start, bool slopes,
                                   LinearRow<double>* row) {
  return FillRowAny(axes, shift, start, slopes, row);
}

MIR_TARGET_CLONES void Interpolate(const float* source,
                                   const LinearAxes<float>& axes,
                                   const LinearRow<float>& row, float constant,
                                   float* out) {
  InterpolateAny(source, axes, row, constant, out);
}
MIR_TARGET_CLONES void Interpolate(const double* source,
                                   const LinearAxes<double>& axes,
                                   const LinearRow<double>& row,
                                   double constant, double* out) {
  InterpolateAny(source, axes, row, constant, out);
}

MIR_TARGET_CLONES void DisplacementGradient(const float* source,
                                            const LinearAxes<float>& axes,
                                            const LinearRow<float>& row,
                                            const float* gradient,
                                            float constant, bool first,
                                            std::array<float*, 3> out) {
  DisplacementGradientAny(source, axes, row, gradient, constant, first, out);
}
MIR_TARGET_CLONES void DisplacementGradient(const double* source,
                                            const LinearAxes<double>& axes,
                                            const LinearRow<double>& row,
                                            const double* gradient,
                                            double constant, bool first,
                                            std::array<double*, 3> out) {
  DisplacementGradientAny(source, axes, row, gradient, constant, first, out);
}

#undef MIR_INLINE

}  // namespace mir::geometry::kernels
