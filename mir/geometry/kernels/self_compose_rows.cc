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

// Both neighbours of a voxel along w.
template <typename T>
using Eight [[gnu::vector_size(8 * sizeof(T))]] = T;

template <typename T, typename V>
MIR_INLINE Eight<T> Join(const V& low, const V& high) {
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
}
template <typename T, typename V>
MIR_INLINE Four<T> Low(const V& eight) {
  return __builtin_shufflevector(eight, eight, 0, 1, 2, 3);
}
template <typename T, typename V>
MIR_INLINE Four<T> High(const V& eight) {
  return __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
}
template <typename T>
MIR_INLINE Eight<T> Weights(T low, T high) {
  return Eight<T>{low, low, low, low, high, high, high, high};
}

// The offsets of the neighbours that are low along w, by the bits (d, h) for
// the high one; and from there to the high one along w.
template <typename T>
struct Offsets {
  int64_t of[4];
  int64_t along_w;

  MIR_INLINE explicit Offsets(const LinearAxes<T>& axes)
      : along_w(4 * int64_t{axes[2].step}) {
    for (int k = 0; k < 4; ++k) {
      of[k] = 4 * ((k & 2 ? int64_t{axes[0].step} : 0) +
                   (k & 1 ? int64_t{axes[1].step} : 0));
    }
  }

  MIR_INLINE Eight<T> Read(const T* at, int k) const {
    Four<T> low, high;
    Load(at + of[k], &low);
    Load(at + of[k] + along_w, &high);
    return Join<T>(low, high);
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
    const T h0 = h_low[i], h1 = h_high[i];
    const Eight<T> near = h0 * offsets.Read(at, 0) + h1 * offsets.Read(at, 1);
    const Eight<T> far = h0 * offsets.Read(at, 2) + h1 * offsets.Read(at, 3);
    const Eight<T> both = d_low[i] * near + d_high[i] * far;
    Four<T> own;
    Load(field + 4 * (first + i), &own);
    own += w_low[i] * Low<T>(both) + w_high[i] * High<T>(both);
    Store(own, out + 4 * i);
  }
}

// The sums of three voxels' numbers, the fourth of which is 0.
template <typename T, typename V>
MIR_INLINE Four<T> Sums(const V& a, const V& b, const V& c) {
  const Four<T> ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) +
                     __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Four<T> cc = __builtin_shufflevector(c, c, 0, 3, 1, 3) +
                     __builtin_shufflevector(c, c, 2, 3, 3, 3);
  return __builtin_shufflevector(ab, cc, 0, 1, 4, 5) +
         __builtin_shufflevector(ab, cc, 2, 3, 6, 7);
}

// Adds to the neighbours of one voxel of a row after the other. Those high
// along w are the low ones of the next voxel where it reads one further along
// w, as in a smooth field: they stay in registers until then. Both neighbours
// along each of h and w are apart, and along d if `kRows` is 4, else d has one
// plane.
template <int kRows, typename T>
class Scatter {
 public:
  MIR_INLINE explicit Scatter(T* field, const Offsets<T>& offsets)
      : field_(field), offsets_(offsets) {}

  MIR_INLINE void Add(int32_t index, const T weights[4],
                      const Eight<T>& weighted) {
    const bool next = index == index_ + 1;
    if (!next) Finish();
    T* const to = field_ + 4 * int64_t{index};
    for (int k = 0; k < kRows; ++k) {
      Four<T> low = high_[k];
      if (!next) Load(to + offsets_.of[k], &low);
      const Eight<T> part = weights[k] * weighted;
      low += Low<T>(part);
      Store(low, to + offsets_.of[k]);
      Load(to + offsets_.of[k] + offsets_.along_w, &high_[k]);
      high_[k] += High<T>(part);
    }
    index_ = index;
  }

  MIR_INLINE void Finish() {
    if (index_ < 0) return;
    T* const to = field_ + 4 * int64_t{index_} + offsets_.along_w;
    for (int k = 0; k < kRows; ++k) Store(high_[k], to + offsets_.of[k]);
  }

 private:
  T* const field_;
  const Offsets<T> offsets_;
  int32_t index_ = -2;  // Of the voxel before.
  Four<T> high_[kRows] = {};
};

// As Scatter, where neighbours may be one voxel: an axis has no more.
template <typename T>
class PlainScatter {
 public:
  MIR_INLINE explicit PlainScatter(T* field, const Offsets<T>& offsets)
      : field_(field), offsets_(offsets) {}

  MIR_INLINE void Add(int32_t index, const T weights[4],
                      const Eight<T>& weighted) {
    T* const to = field_ + 4 * int64_t{index};
    for (int k = 0; k < 4; ++k) {
      const Eight<T> part = weights[k] * weighted;
      kernels::Add(Low<T>(part), to + offsets_.of[k]);
      kernels::Add(High<T>(part), to + offsets_.of[k] + offsets_.along_w);
    }
  }

  MIR_INLINE void Finish() {}

 private:
  T* const field_;
  const Offsets<T> offsets_;
};

template <typename ScatterTo, typename T>
MIR_INLINE void AddSelfComposeGradientOf(
    const T* __restrict field, int64_t first, const LinearAxes<T>& axes,
    const LinearRow<T>& row, const T* __restrict gradient,
    T* __restrict scratch, T* __restrict field_gradient) {
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
  ScatterTo scatter(field_gradient, offsets);
  const Four<T> slopes = {axes[0].slope, axes[1].slope, axes[2].slope, T(0)};
  for (int64_t i = 0; i < width; ++i) {
    const int64_t voxel = 4 * int64_t{index[i]};
    const T* const at = field + voxel;
    const T d0 = d_low[i], d1 = d_high[i];
    const T h0 = h_low[i], h1 = h_high[i];
    const Eight<T> read[4] = {offsets.Read(at, 0), offsets.Read(at, 1),
                              offsets.Read(at, 2), offsets.Read(at, 3)};
    const Eight<T> near = h0 * read[0] + h1 * read[1];
    const Eight<T> far = h0 * read[2] + h1 * read[3];
    const Eight<T> along_d = d_falls[i] * near + d_rises[i] * far;
    const Eight<T> along_h =
        d0 * (h_falls[i] * read[0] + h_rises[i] * read[1]) +
        d1 * (h_falls[i] * read[2] + h_rises[i] * read[3]);
    Four<T> g;
    Load(gradient + 4 * i, &g);
    const Eight<T> gradients = Join<T>(g, g);
    const Eight<T> weighted = Weights(w_low[i], w_high[i]) * gradients;
    const Eight<T> to_d = weighted * along_d;
    const Eight<T> to_h = weighted * along_h;
    const Eight<T> to_w =
        Weights(w_falls[i], w_rises[i]) * gradients * (d0 * near + d1 * far);
    const Four<T> moved = slopes * Sums<T>(Low<T>(to_d) + High<T>(to_d),
                                           Low<T>(to_h) + High<T>(to_h),
                                           Low<T>(to_w) + High<T>(to_w));
    // To the voxels themselves at last: registers may hold them meanwhile.
    Store(moved, scratch + 4 * i);
    const T weights[4] = {d0 * h0, d0 * h1, d1 * h0, d1 * h1};
    scatter.Add(index[i], weights, weighted);
  }
  scatter.Finish();
  T* __restrict own = field_gradient + 4 * first;
  for (int64_t i = 0; i < 4 * width; ++i) own[i] += scratch[i];
}

template <typename T>
MIR_INLINE void AddSelfComposeGradientAny(const T* field, int64_t first,
                                          const LinearAxes<T>& axes,
                                          const LinearRow<T>& row,
                                          const T* gradient, T* scratch,
                                          T* field_gradient) {
  if (axes[1].step == 0 || axes[2].step == 0) {
    AddSelfComposeGradientOf<PlainScatter<T>>(field, first, axes, row, gradient,
                                              scratch, field_gradient);
  } else if (axes[0].step == 0) {
    AddSelfComposeGradientOf<Scatter<2, T>>(field, first, axes, row, gradient,
                                            scratch, field_gradient);
  } else {
    AddSelfComposeGradientOf<Scatter<4, T>>(field, first, axes, row, gradient,
                                            scratch, field_gradient);
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
                                              float* scratch,
                                              float* field_gradient) {
  AddSelfComposeGradientAny(field, first, axes, row, gradient, scratch,
                            field_gradient);
}
MIR_TARGET_CLONES void AddSelfComposeGradient(
    const double* field, int64_t first, const LinearAxes<double>& axes,
    const LinearRow<double>& row, const double* gradient, double* scratch,
    double* field_gradient) {
  AddSelfComposeGradientAny(field, first, axes, row, gradient, scratch,
                            field_gradient);
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
