#include "mir/geometry/kernels/self_compose_rows.h"

#include <cstring>

#include "mir/base/target_clones.h"

namespace mir::geometry::kernels {
namespace {

#define MIR_INLINE [[gnu::always_inline]] inline

template <typename T>
using Four [[gnu::vector_size(4 * sizeof(T))]] = T;

// A voxel's four numbers; memory is aligned to T alone.
template <typename T, typename V>
MIR_INLINE void Load(const T* from, V* four) {
  std::memcpy(four, from, sizeof(*four));
}
template <typename T, typename V>
MIR_INLINE void Store(const V& four, T* to) {
  std::memcpy(to, &four, sizeof(four));
}
template <typename T, typename V>
MIR_INLINE void Add(const V& four, T* to) {
  V sum;
  Load(to, &sum);
  sum += four;
  Store(sum, to);
}

// The neighbours' offsets, by the bits (d, h, w) for the high one.
template <typename T>
struct Offsets {
  int64_t of[8];

  MIR_INLINE explicit Offsets(const LinearAxes<T>& axes) {
    for (int k = 0; k < 8; ++k) {
      of[k] = 4 * ((k & 4 ? int64_t{axes[0].step} : 0) +
                   (k & 2 ? int64_t{axes[1].step} : 0) +
                   (k & 1 ? int64_t{axes[2].step} : 0));
    }
  }
};

template <typename T>
MIR_INLINE void SelfComposeRowOf(const T* field, int64_t first,
                                 const LinearAxes<T>& axes,
                                 const LinearRow<T>& row, T* __restrict out) {
  const Offsets<T> offsets(axes);
  const auto width = static_cast<int64_t>(row.index.size());
  const int32_t* const index = row.index.data();
  const T* const d_low = row.low[0].data();
  const T* const d_high = row.high[0].data();
  const T* const h_low = row.low[1].data();
  const T* const h_high = row.high[1].data();
  const T* const w_low = row.low[2].data();
  const T* const w_high = row.high[2].data();
  for (int64_t i = 0; i < width; ++i) {
    const T* const at = field + 4 * int64_t{index[i]};
    const T w0 = w_low[i], w1 = w_high[i];
    Four<T> line[4];
    for (int k = 0; k < 4; ++k) {
      Four<T> low, high;
      Load(at + offsets.of[2 * k], &low);
      Load(at + offsets.of[2 * k + 1], &high);
      line[k] = w0 * low + w1 * high;
    }
    const T h0 = h_low[i], h1 = h_high[i];
    Four<T> own;
    Load(field + 4 * (first + i), &own);
    own += d_low[i] * (h0 * line[0] + h1 * line[1]) +
           d_high[i] * (h0 * line[2] + h1 * line[3]);
    Store(own, out + 4 * i);
  }
}

template <typename T, typename V>
MIR_INLINE T Sum(const V& four) {
  return (four[0] + four[1]) + four[2];
}

template <typename T>
MIR_INLINE void AddSelfComposeGradientOf(const T* __restrict field,
                                         int64_t first,
                                         const LinearAxes<T>& axes,
                                         const LinearRow<T>& row,
                                         const T* __restrict gradient,
                                         T* __restrict field_gradient) {
  const Offsets<T> offsets(axes);
  const auto width = static_cast<int64_t>(row.index.size());
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
  for (int64_t i = 0; i < width; ++i) {
    const int64_t voxel = 4 * int64_t{index[i]};
    const T* const at = field + voxel;
    const T d0 = d_low[i], d1 = d_high[i];
    const T h0 = h_low[i], h1 = h_high[i];
    const T w0 = w_low[i], w1 = w_high[i];
    Four<T> line[4], along_w[4];
    for (int k = 0; k < 4; ++k) {
      Four<T> low, high;
      Load(at + offsets.of[2 * k], &low);
      Load(at + offsets.of[2 * k + 1], &high);
      line[k] = w0 * low + w1 * high;
      along_w[k] = w_falls[i] * low + w_rises[i] * high;
    }
    Four<T> g;
    Load(gradient + 4 * i, &g);
    const Four<T> to_d = g * (d_falls[i] * (h0 * line[0] + h1 * line[1]) +
                              d_rises[i] * (h0 * line[2] + h1 * line[3]));
    const Four<T> to_h = g * (h_falls[i] * (d0 * line[0] + d1 * line[2]) +
                              h_rises[i] * (d0 * line[1] + d1 * line[3]));
    const Four<T> to_w = g * (d0 * (h0 * along_w[0] + h1 * along_w[1]) +
                              d1 * (h0 * along_w[2] + h1 * along_w[3]));
    const Four<T> moved = {d_slope * Sum<T>(to_d), h_slope * Sum<T>(to_h),
                           w_slope * Sum<T>(to_w), T(0)};
    Add(moved, field_gradient + 4 * (first + i));
    T* const target = field_gradient + voxel;
    const T weights[4] = {d0 * h0, d0 * h1, d1 * h0, d1 * h1};
    for (int k = 0; k < 4; ++k) {
      const Four<T> part = weights[k] * g;
      Add(w0 * part, target + offsets.of[2 * k]);
      Add(w1 * part, target + offsets.of[2 * k + 1]);
    }
  }
}

template <typename T>
MIR_INLINE void InterleaveRowOf(const T* const components[3], int64_t width,
                                T scale, T* __restrict out) {
  const T* __restrict d = components[0];
  const T* __restrict h = components[1];
  const T* __restrict w = components[2];
  if (d == nullptr) {
    for (int64_t i = 0; i < width; ++i) {
      out[4 * i] = 0;
      out[4 * i + 1] = scale * h[i];
      out[4 * i + 2] = scale * w[i];
      out[4 * i + 3] = 0;
    }
    return;
  }
  for (int64_t i = 0; i < width; ++i) {
    out[4 * i] = scale * d[i];
    out[4 * i + 1] = scale * h[i];
    out[4 * i + 2] = scale * w[i];
    out[4 * i + 3] = 0;
  }
}

template <typename T>
MIR_INLINE void SeparateRowOf(const T* __restrict in, int64_t width, T scale,
                              T* const components[3]) {
  T* __restrict d = components[0];
  T* __restrict h = components[1];
  T* __restrict w = components[2];
  if (d == nullptr) {
    for (int64_t i = 0; i < width; ++i) {
      h[i] = scale * in[4 * i + 1];
      w[i] = scale * in[4 * i + 2];
    }
    return;
  }
  for (int64_t i = 0; i < width; ++i) {
    d[i] = scale * in[4 * i];
    h[i] = scale * in[4 * i + 1];
    w[i] = scale * in[4 * i + 2];
  }
}

}  // namespace

MIR_TARGET_CLONES void SelfComposeRow(const float* field, int64_t first,
                                      const LinearAxes<float>& axes,
                                      const LinearRow<float>& row, float* out) {
  SelfComposeRowOf(field, first, axes, row, out);
}
MIR_TARGET_CLONES void SelfComposeRow(const double* field, int64_t first,
                                      const LinearAxes<double>& axes,
                                      const LinearRow<double>& row,
                                      double* out) {
  SelfComposeRowOf(field, first, axes, row, out);
}

MIR_TARGET_CLONES void AddSelfComposeGradient(const float* field, int64_t first,
                                              const LinearAxes<float>& axes,
                                              const LinearRow<float>& row,
                                              const float* gradient,
                                              float* field_gradient) {
  AddSelfComposeGradientOf(field, first, axes, row, gradient, field_gradient);
}
MIR_TARGET_CLONES void AddSelfComposeGradient(const double* field,
                                              int64_t first,
                                              const LinearAxes<double>& axes,
                                              const LinearRow<double>& row,
                                              const double* gradient,
                                              double* field_gradient) {
  AddSelfComposeGradientOf(field, first, axes, row, gradient, field_gradient);
}

MIR_TARGET_CLONES void InterleaveRow(const float* const components[3],
                                     int64_t width, float scale, float* out) {
  InterleaveRowOf(components, width, scale, out);
}
MIR_TARGET_CLONES void InterleaveRow(const double* const components[3],
                                     int64_t width, double scale, double* out) {
  InterleaveRowOf(components, width, scale, out);
}
MIR_TARGET_CLONES void SeparateRow(const float* in, int64_t width, float scale,
                                   float* const components[3]) {
  SeparateRowOf(in, width, scale, components);
}
MIR_TARGET_CLONES void SeparateRow(const double* in, int64_t width,
                                   double scale, double* const components[3]) {
  SeparateRowOf(in, width, scale, components);
}

#undef MIR_INLINE

}  // namespace mir::geometry::kernels
