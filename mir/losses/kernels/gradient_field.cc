#include "mir/losses/kernels/gradient_field.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "mir/base/target_clones.h"

namespace mir::losses::kernels {

namespace field_rows {

template <typename T>
[[gnu::always_inline]] inline void AddRowOf(const T* __restrict in,
                                            int64_t width, T* __restrict out) {
  for (int64_t w = 0; w < width; ++w) out[w] += in[w];
}
MIR_TARGET_CLONES void AddRow(const float* in, int64_t width, float* out) {
  AddRowOf(in, width, out);
}
MIR_TARGET_CLONES void AddRow(const double* in, int64_t width, double* out) {
  AddRowOf(in, width, out);
}

// The sum over a box along w, of a row that has `radius` zeros before and after
// it, times `scale` and scales[w].
template <typename T>
[[gnu::always_inline]] inline void BoxRowOf(const T* __restrict padded,
                                            int64_t radius, T scale,
                                            const T* __restrict scales,
                                            int64_t width, T* __restrict out) {
  for (int64_t w = 0; w < width; ++w) out[w] = padded[w];
  for (int64_t k = 1; k <= 2 * radius; ++k) {
    for (int64_t w = 0; w < width; ++w) out[w] += padded[w + k];
  }
  for (int64_t w = 0; w < width; ++w) out[w] *= scale * scales[w];
}
MIR_TARGET_CLONES void BoxRow(const float* padded, int64_t radius, float scale,
                              const float* scales, int64_t width, float* out) {
  BoxRowOf(padded, radius, scale, scales, width, out);
}
MIR_TARGET_CLONES void BoxRow(const double* padded, int64_t radius,
                              double scale, const double* scales, int64_t width,
                              double* out) {
  BoxRowOf(padded, radius, scale, scales, width, out);
}

// A smoothed row and its neighbours along d and h; with one voxel of padding
// before and after along w.
template <typename T>
struct Neighbours {
  const T* row;
  const T* before_h;
  const T* after_h;
  const T* before_d;
  const T* after_d;
};

struct Terms {
  double epsilon, eta_a, eta_b;
};

// Returns the row's similarity, and writes its derivatives by the three
// components of b's gradient.
template <bool gradient, typename T>
[[gnu::always_inline]] inline double CompareRowOf(
    const Neighbours<T>& a, const Neighbours<T>& b, const Terms& terms,
    int64_t width, T* __restrict by_d, T* __restrict by_h, T* __restrict by_w) {
  const T epsilon = static_cast<T>(terms.epsilon);
  const T eta_a = static_cast<T>(terms.eta_a);
  const T eta_b = static_cast<T>(terms.eta_b);
  const T half = T(0.5);
  double lanes[16] = {};
  const auto one = [&](int64_t w) __attribute__((always_inline)) {
    const T ad = half * (a.after_d[w] - a.before_d[w]);
    const T ah = half * (a.after_h[w] - a.before_h[w]);
    const T aw = half * (a.row[w + 1] - a.row[w - 1]);
    const T bd = half * (b.after_d[w] - b.before_d[w]);
    const T bh = half * (b.after_h[w] - b.before_h[w]);
    const T bw = half * (b.row[w + 1] - b.row[w - 1]);
    const T dot = ad * bd + ah * bh + aw * bw;
    const T norm_a = ad * ad + ah * ah + aw * aw + eta_a;
    const T norm_b = bd * bd + bh * bh + bw * bw + eta_b;
    const T inverse = 1 / (norm_a * norm_b + epsilon);
    const T value = (dot * dot + epsilon) * inverse;
    if (gradient) {
      const T by_dot = 2 * dot * inverse;
      const T by_norm = -2 * value * norm_a * inverse;
      by_d[w] = by_dot * ad + by_norm * bd;
      by_h[w] = by_dot * ah + by_norm * bh;
      by_w[w] = by_dot * aw + by_norm * bw;
    }
    return value;
  };
  int64_t w = 0;
  for (; w + 16 <= width; w += 16) {
    for (int lane = 0; lane < 16; ++lane) lanes[lane] += one(w + lane);
  }
  double sum = 0;
  for (int lane = 0; lane < 16; ++lane) sum += lanes[lane];
  for (; w < width; ++w) sum += one(w);
  return sum;
}

#define MIR_COMPARE_ROW(name, gradient, T)                                  \
  MIR_TARGET_CLONES double name(const Neighbours<T>& a,                     \
                                const Neighbours<T>& b, const Terms& terms, \
                                int64_t width, T* by_d, T* by_h, T* by_w) { \
    return CompareRowOf<gradient, T>(a, b, terms, width, by_d, by_h, by_w); \
  }
MIR_COMPARE_ROW(Compare, false, float)
MIR_COMPARE_ROW(Compare, false, double)
MIR_COMPARE_ROW(CompareWithGradient, true, float)
MIR_COMPARE_ROW(CompareWithGradient, true, double)
#undef MIR_COMPARE_ROW

// The adjoint of the central differences: half of what comes from before less
// what comes from after. `along_w` has one voxel of padding at each end.
template <typename T>
[[gnu::always_inline]] inline void AdjointRowOf(
    const T* __restrict before_d, T sign_before_d, const T* __restrict after_d,
    T sign_after_d, const T* __restrict before_h, T sign_before_h,
    const T* __restrict after_h, T sign_after_h, const T* __restrict along_w,
    int64_t width, T* __restrict out) {
  for (int64_t w = 0; w < width; ++w) {
    out[w] = T(0.5) * (sign_before_d * before_d[w] - sign_after_d * after_d[w] +
                       sign_before_h * before_h[w] - sign_after_h * after_h[w] +
                       along_w[w - 1] - along_w[w + 1]);
  }
}
MIR_TARGET_CLONES void AdjointRow(const float* before_d, float sign_before_d,
                                  const float* after_d, float sign_after_d,
                                  const float* before_h, float sign_before_h,
                                  const float* after_h, float sign_after_h,
                                  const float* along_w, int64_t width,
                                  float* out) {
  AdjointRowOf(before_d, sign_before_d, after_d, sign_after_d, before_h,
               sign_before_h, after_h, sign_after_h, along_w, width, out);
}
MIR_TARGET_CLONES void AdjointRow(const double* before_d, double sign_before_d,
                                  const double* after_d, double sign_after_d,
                                  const double* before_h, double sign_before_h,
                                  const double* after_h, double sign_after_h,
                                  const double* along_w, int64_t width,
                                  double* out) {
  AdjointRowOf(before_d, sign_before_d, after_d, sign_after_d, before_h,
               sign_before_h, after_h, sign_after_h, along_w, width, out);
}

// Multiplies by scale * scales[w].
template <typename T>
[[gnu::always_inline]] inline void ScaleRowOf(T scale,
                                              const T* __restrict scales,
                                              int64_t width,
                                              T* __restrict row) {
  for (int64_t w = 0; w < width; ++w) row[w] *= scale * scales[w];
}
MIR_TARGET_CLONES void ScaleRow(float scale, const float* scales, int64_t width,
                                float* row) {
  ScaleRowOf(scale, scales, width, row);
}
MIR_TARGET_CLONES void ScaleRow(double scale, const double* scales,
                                int64_t width, double* row) {
  ScaleRowOf(scale, scales, width, row);
}

}  // namespace field_rows

namespace {

// Slices per task: many beside those that neighbouring tasks compute twice.
constexpr int64_t kSlab = 20;

template <typename T>
class Comparison {
 public:
  Comparison(const T* a, const T* b, const std::array<int64_t, 3>& size,
             int axes, const GradientFieldFormula& formula, T* grad_b)
      : a_(a),
        b_(b),
        grad_b_(grad_b),
        depth_(size[0]),
        height_(size[1]),
        width_(size[2]),
        radius_(formula.radius),
        radius_d_(axes == 3 ? formula.radius : 0),
        formula_(formula),
        stride_(width_ + 2),
        plane_(height_ * stride_) {
    for (int axis = 0; axis < 3; ++axis) {
      const int64_t reach = axis == 0 ? radius_d_ : radius_;
      for (int64_t i = 0; i < size[axis]; ++i) {
        const int64_t inside = std::min(i + reach, size[axis] - 1) -
                               std::max<int64_t>(i - reach, 0) + 1;
        scales_[axis].push_back(
            static_cast<T>(1.0 / (formula.replicate ? inside : 2 * reach + 1)));
      }
    }
    ones_.assign(width_, T(1));
    zeros_.assign(stride_, T(0));
  }

  int64_t tasks() const { return (depth_ + kSlab - 1) / kSlab; }

  double Run(int64_t volume, int64_t task) const;

 private:
  // Slices [begin, end) of one kind, each of rows with padding along w.
  struct Slices {
    int64_t begin, end;
    std::vector<T> memory;
  };

  Slices Take(int64_t begin, int64_t end) const {
    Slices slices{std::max<int64_t>(begin, 0), std::min(end, depth_), {}};
    slices.memory.assign((slices.end - slices.begin) * plane_, T(0));
    return slices;
  }

  T* Row(Slices& slices, int64_t d, int64_t h) const {
    return slices.memory.data() + (d - slices.begin) * plane_ + h * stride_ + 1;
  }
  const T* Row(const Slices& slices, int64_t d, int64_t h) const {
    return slices.memory.data() + (d - slices.begin) * plane_ + h * stride_ + 1;
  }

  // One slice of box sums, scaled where `scaled`: row(d, h) is where a row
  // lies.
  template <typename Source, typename Out>
  void Smooth(const Source& row, int64_t d, bool scaled, const Out& out) const;

  void SmoothImage(const T* image, Slices& slices) const;

  field_rows::Neighbours<T> Around(const Slices& slices, int64_t d,
                                   int64_t h) const;

  const T* const a_;
  const T* const b_;
  T* const grad_b_;
  const int64_t depth_, height_, width_, radius_, radius_d_;
  const GradientFieldFormula formula_;
  const int64_t stride_, plane_;
  std::vector<T> scales_[3];  // Of the mean at each place along an axis.
  std::vector<T> ones_, zeros_;
};

template <typename T>
template <typename Source, typename Out>
void Comparison<T>::Smooth(const Source& row, int64_t d, bool scaled,
                           const Out& out) const {
  const int64_t first = std::max<int64_t>(d - radius_d_, 0);
  const int64_t last = std::min(d + radius_d_, depth_ - 1);
  std::vector<T> columns(height_ * width_, T(0));
  for (int64_t slice = first; slice <= last; ++slice) {
    for (int64_t h = 0; h < height_; ++h) {
      field_rows::AddRow(row(slice, h), width_, columns.data() + h * width_);
    }
  }
  std::vector<T> padded(width_ + 2 * radius_, T(0));
  for (int64_t h = 0; h < height_; ++h) {
    std::fill(padded.begin(), padded.end(), T(0));
    for (int64_t k = std::max<int64_t>(h - radius_, 0);
         k <= std::min(h + radius_, height_ - 1); ++k) {
      field_rows::AddRow(columns.data() + k * width_, width_,
                         padded.data() + radius_);
    }
    field_rows::BoxRow(
        padded.data(), radius_, scaled ? scales_[0][d] * scales_[1][h] : T(1),
        scaled ? scales_[2].data() : ones_.data(), width_, out(h));
  }
}

template <typename T>
void Comparison<T>::SmoothImage(const T* image, Slices& slices) const {
  for (int64_t d = slices.begin; d < slices.end; ++d) {
    Smooth([&](int64_t slice,
               int64_t h) { return image + (slice * height_ + h) * width_; },
           d, /*scaled=*/true, [&](int64_t h) { return Row(slices, d, h); });
    if (!formula_.replicate) continue;
    for (int64_t h = 0; h < height_; ++h) {
      T* const row = Row(slices, d, h);
      row[-1] = row[0];
      row[width_] = row[width_ - 1];
    }
  }
}

template <typename T>
field_rows::Neighbours<T> Comparison<T>::Around(const Slices& slices, int64_t d,
                                                int64_t h) const {
  const T* const row = Row(slices, d, h);
  const T* const outside = formula_.replicate ? row : zeros_.data() + 1;
  return {row, h > 0 ? Row(slices, d, h - 1) : outside,
          h + 1 < height_ ? Row(slices, d, h + 1) : outside,
          d > 0 ? Row(slices, d - 1, h) : outside,
          d + 1 < depth_ ? Row(slices, d + 1, h) : outside};
}

template <typename T>
double Comparison<T>::Run(int64_t volume, int64_t task) const {
  const int64_t offset = volume * depth_ * height_ * width_;
  const int64_t begin = task * kSlab;
  const int64_t end = std::min(begin + kSlab, depth_);
  const bool gradient = grad_b_ != nullptr;
  // Each voxel's gradient comes from smoothed voxels around it, whose gradient
  // comes from their neighbours' terms.
  const int64_t smooth_reach = gradient ? radius_d_ : 0;
  const int64_t term_reach = gradient ? smooth_reach + 1 : 0;
  Slices a = Take(begin - term_reach - 1, end + term_reach + 1);
  Slices b = Take(begin - term_reach - 1, end + term_reach + 1);
  SmoothImage(a_ + offset, a);
  SmoothImage(b_ + offset, b);

  const field_rows::Terms terms{formula_.epsilon, formula_.eta_a,
                                formula_.eta_b};
  Slices by[3];
  for (Slices& one : by) {
    one = gradient ? Take(begin - term_reach, end + term_reach)
                   : Slices{begin, end, {}};
  }
  double sum = 0;
  for (int64_t d = by[0].begin; d < by[0].end; ++d) {
    for (int64_t h = 0; h < height_; ++h) {
      const auto around_a = Around(a, d, h), around_b = Around(b, d, h);
      double value;
      if (gradient) {
        T* const along_w = Row(by[2], d, h);
        value = field_rows::CompareWithGradient(around_a, around_b, terms,
                                                width_, Row(by[0], d, h),
                                                Row(by[1], d, h), along_w);
        if (formula_.replicate) {
          // The differences at the border have one side only.
          along_w[-1] = -along_w[0];
          along_w[width_] = -along_w[width_ - 1];
        }
      } else {
        value = field_rows::Compare(around_a, around_b, terms, width_, nullptr,
                                    nullptr, nullptr);
      }
      if (d >= begin && d < end) sum += value;
    }
  }
  if (!gradient) return sum;

  // By the smoothed image; in the place of a, which is not needed any more.
  const T beyond = formula_.replicate ? T(-1) : T(0);
  Slices& smooth = a;
  for (int64_t d = std::max<int64_t>(begin - smooth_reach, 0);
       d < std::min(end + smooth_reach, depth_); ++d) {
    for (int64_t h = 0; h < height_; ++h) {
      const bool first_d = d == 0, last_d = d + 1 == depth_;
      const bool first_h = h == 0, last_h = h + 1 == height_;
      T* const out = Row(smooth, d, h);
      field_rows::AdjointRow(
          Row(by[0], first_d ? d : d - 1, h), first_d ? beyond : T(1),
          Row(by[0], last_d ? d : d + 1, h), last_d ? beyond : T(1),
          Row(by[1], d, first_h ? h : h - 1), first_h ? beyond : T(1),
          Row(by[1], d, last_h ? h : h + 1), last_h ? beyond : T(1),
          Row(by[2], d, h), width_, out);
      field_rows::ScaleRow(scales_[0][d] * scales_[1][h], scales_[2].data(),
                           width_, out);
    }
  }
  for (int64_t d = begin; d < end; ++d) {
    Smooth([&](int64_t slice, int64_t h) { return Row(smooth, slice, h); }, d,
           /*scaled=*/false,
           [&](int64_t h) {
             return grad_b_ + offset + (d * height_ + h) * width_;
           });
  }
  return sum;
}

}  // namespace

template <typename T>
double CompareGradientFields(const T* a, const T* b, int64_t volumes,
                             const std::array<int64_t, 3>& size, int axes,
                             const GradientFieldFormula& formula, T* grad_b) {
  const Comparison<T> comparison(a, b, size, axes, formula, grad_b);
  const int64_t per_volume = comparison.tasks();
  std::vector<double> sums(volumes * per_volume);
  at::parallel_for(0, sums.size(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      sums[task] = comparison.Run(task / per_volume, task % per_volume);
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

template double CompareGradientFields<float>(const float*, const float*,
                                             int64_t,
                                             const std::array<int64_t, 3>&, int,
                                             const GradientFieldFormula&,
                                             float*);
template double CompareGradientFields<double>(const double*, const double*,
                                              int64_t,
                                              const std::array<int64_t, 3>&,
                                              int, const GradientFieldFormula&,
                                              double*);

}  // namespace mir::losses::kernels
