#include "mir/losses/kernels/self_similarity.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#include "mir/base/target_clones.h"

namespace mir::losses::kernels {

const std::array<NeighbourPair, kSelfSimilarities> kNeighbourPairs = {{
    {{0, 0, -1}, {-1, 0, 0}},
    {{0, -1, 0}, {-1, 0, 0}},
    {{0, -1, 0}, {0, 0, -1}},
    {{0, 0, 1}, {-1, 0, 0}},
    {{0, 0, 1}, {0, -1, 0}},
    {{1, 0, 0}, {0, 0, -1}},
    {{1, 0, 0}, {0, -1, 0}},
    {{1, 0, 0}, {0, 0, 1}},
    {{0, 1, 0}, {-1, 0, 0}},
    {{0, 1, 0}, {0, 0, -1}},
    {{0, 1, 0}, {0, 0, 1}},
    {{0, 1, 0}, {1, 0, 0}},
}};

namespace similarity_rows {

constexpr int kPairs = kSelfSimilarities;

// exp of a number that is not positive, by a polynomial on half a power of two;
// off by about 2 units in the last place.
[[gnu::always_inline]] inline float Exp(float x) {
  x = x > -87.0f ? x : -87.0f;
  const float magic = 12582912.0f;  // Rounds, and leaves the integer's bits.
  const float shifted = x * 1.44269504f + magic;
  const float n = shifted - magic;
  float r = x - n * 0.693145752f;
  r = r - n * 1.42860677e-6f;
  float p = 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  uint32_t bits, power;
  std::memcpy(&bits, &shifted, sizeof(bits));
  std::memcpy(&power, &p, sizeof(power));
  power += bits << 23;
  std::memcpy(&p, &power, sizeof(p));
  return p;
}
[[gnu::always_inline]] inline double Exp(double x) {
  x = x > -700.0 ? x : -700.0;
  const double magic = 6755399441055744.0;
  const double shifted = x * 1.4426950408889634 + magic;
  const double n = shifted - magic;
  double r = x - n * 0.69314718036912382;
  r = r - n * 1.9082149292705877e-10;
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  uint64_t bits, power;
  std::memcpy(&bits, &shifted, sizeof(bits));
  std::memcpy(&power, &p, sizeof(power));
  power += bits << 52;
  std::memcpy(&p, &power, sizeof(p));
  return p;
}

// out += (first - second)^2
template <typename T>
[[gnu::always_inline]] inline void AddSquaresOf(const T* __restrict first,
                                                const T* __restrict second,
                                                int64_t width,
                                                T* __restrict out) {
  for (int64_t w = 0; w < width; ++w) {
    const T difference = first[w] - second[w];
    out[w] += difference * difference;
  }
}
MIR_TARGET_CLONES void AddSquares(const float* first, const float* second,
                                  int64_t width, float* out) {
  AddSquaresOf(first, second, width, out);
}
MIR_TARGET_CLONES void AddSquares(const double* first, const double* second,
                                  int64_t width, double* out) {
  AddSquaresOf(first, second, width, out);
}

// The same over five pairs of rows, and without `out` before.
template <typename T>
[[gnu::always_inline]] inline void SumFiveSquaresOf(const T* const* first,
                                                    const T* const* second,
                                                    int64_t width,
                                                    T* __restrict out) {
  const T *const a0 = first[0], *const a1 = first[1], *const a2 = first[2],
                 *const a3 = first[3], *const a4 = first[4];
  const T *const b0 = second[0], *const b1 = second[1], *const b2 = second[2],
                 *const b3 = second[3], *const b4 = second[4];
#pragma GCC ivdep
  for (int64_t w = 0; w < width; ++w) {
    const T d0 = a0[w] - b0[w], d1 = a1[w] - b1[w], d2 = a2[w] - b2[w],
            d3 = a3[w] - b3[w], d4 = a4[w] - b4[w];
    out[w] = d0 * d0 + d1 * d1 + d2 * d2 + d3 * d3 + d4 * d4;
  }
}
MIR_TARGET_CLONES void SumFiveSquares(const float* const* first,
                                      const float* const* second, int64_t width,
                                      float* out) {
  SumFiveSquaresOf(first, second, width, out);
}
MIR_TARGET_CLONES void SumFiveSquares(const double* const* first,
                                      const double* const* second,
                                      int64_t width, double* out) {
  SumFiveSquaresOf(first, second, width, out);
}

// out += factor * in
template <typename T>
[[gnu::always_inline]] inline void AddRowOf(const T* __restrict in, T factor,
                                            int64_t width, T* __restrict out) {
  for (int64_t w = 0; w < width; ++w) out[w] += factor * in[w];
}
MIR_TARGET_CLONES void AddRow(const float* in, float factor, int64_t width,
                              float* out) {
  AddRowOf(in, factor, width, out);
}
MIR_TARGET_CLONES void AddRow(const double* in, double factor, int64_t width,
                              double* out) {
  AddRowOf(in, factor, width, out);
}

// out = the sum of five rows, in this order.
template <typename T>
[[gnu::always_inline]] inline void SumFiveRowsOf(const T* const* rows,
                                                 int64_t count,
                                                 T* __restrict out) {
  const T *const r0 = rows[0], *const r1 = rows[1], *const r2 = rows[2],
                 *const r3 = rows[3], *const r4 = rows[4];
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    out[i] = r0[i] + r1[i] + r2[i] + r3[i] + r4[i];
  }
}
MIR_TARGET_CLONES void SumFiveRows(const float* const* rows, int64_t count,
                                   float* out) {
  SumFiveRowsOf(rows, count, out);
}
MIR_TARGET_CLONES void SumFiveRows(const double* const* rows, int64_t count,
                                   double* out) {
  SumFiveRowsOf(rows, count, out);
}

// The sum over a box along w, of a row with `radius` voxels of padding.
template <typename T>
[[gnu::always_inline]] inline void BoxRowOf(const T* __restrict padded,
                                            int64_t radius, T scale,
                                            int64_t width, T* __restrict out) {
  if (radius == 2) {
    for (int64_t w = 0; w < width; ++w) {
      out[w] = scale * (padded[w] + padded[w + 1] + padded[w + 2] +
                        padded[w + 3] + padded[w + 4]);
    }
    return;
  }
  for (int64_t w = 0; w < width; ++w) out[w] = padded[w];
  for (int64_t k = 1; k <= 2 * radius; ++k) {
    for (int64_t w = 0; w < width; ++w) out[w] += padded[w + k];
  }
  for (int64_t w = 0; w < width; ++w) out[w] *= scale;
}
MIR_TARGET_CLONES void BoxRow(const float* padded, int64_t radius, float scale,
                              int64_t width, float* out) {
  BoxRowOf(padded, radius, scale, width, out);
}
MIR_TARGET_CLONES void BoxRow(const double* padded, int64_t radius,
                              double scale, int64_t width, double* out) {
  BoxRowOf(padded, radius, scale, width, out);
}

// The variance of one voxel's similarities: their mean over the least.
template <typename T>
[[gnu::always_inline]] inline T VarianceAt(const T* __restrict rows,
                                           int64_t pitch, int64_t w, T* least) {
  T smallest = rows[w], sum = rows[w];
#pragma GCC unroll 12
  for (int c = 1; c < kPairs; ++c) {
    const T value = rows[c * pitch + w];
    smallest = value < smallest ? value : smallest;
    sum += value;
  }
  *least = smallest;
  const T variance = sum * (T(1) / kPairs) - smallest;
  return variance > 0 ? variance : T(0);
}

template <typename T>
[[gnu::always_inline]] inline double SumVariancesOf(const T* __restrict rows,
                                                    int64_t width,
                                                    int64_t pitch,
                                                    T* __restrict scratch) {
#pragma GCC ivdep
  for (int64_t w = 0; w < width; ++w) {
    T least;
    scratch[w] = VarianceAt(rows, pitch, w, &least);
  }
  double sum = 0;
  for (int64_t w = 0; w < width; ++w) sum += scratch[w];
  return sum;
}
MIR_TARGET_CLONES double SumVariances(const float* rows, int64_t width,
                                      int64_t pitch, float* scratch) {
  return SumVariancesOf(rows, width, pitch, scratch);
}
MIR_TARGET_CLONES double SumVariances(const double* rows, int64_t width,
                                      int64_t pitch, double* scratch) {
  return SumVariancesOf(rows, width, pitch, scratch);
}

// The descriptor of a row's similarities. Keeps the least similarity, the
// inverse variance, and whether the variance is within its bounds.
template <typename T>
[[gnu::always_inline]] inline void DescribeOf(
    const T* __restrict rows, int64_t width, int64_t pitch, T low, T high,
    T* __restrict least, T* __restrict inverse, T* __restrict moves,
    T* __restrict out) {
#pragma GCC ivdep
  for (int64_t w = 0; w < width; ++w) {
    T smallest;
    const T variance = VarianceAt(rows, pitch, w, &smallest);
    const T raised = variance > low ? variance : low;
    const T bounded = raised < high ? raised : high;
    least[w] = smallest;
    inverse[w] = 1 / bounded;
    moves[w] = variance >= low && variance <= high ? T(1) : T(0);
  }
  for (int c = 0; c < kPairs; ++c) {
    const T* const __restrict row = rows + c * pitch;
    T* const __restrict described = out + c * pitch;
#pragma GCC ivdep
    for (int64_t w = 0; w < width; ++w) {
      described[w] = Exp((least[w] - row[w]) * inverse[w]);
    }
  }
}
MIR_TARGET_CLONES void Describe(const float* rows, int64_t width, int64_t pitch,
                                float low, float high, float* least,
                                float* inverse, float* moves, float* out) {
  DescribeOf(rows, width, pitch, low, high, least, inverse, moves, out);
}
MIR_TARGET_CLONES void Describe(const double* rows, int64_t width,
                                int64_t pitch, double low, double high,
                                double* least, double* inverse, double* moves,
                                double* out) {
  DescribeOf(rows, width, pitch, low, high, least, inverse, moves, out);
}

// The squared difference of two rows' descriptors.
template <typename T>
[[gnu::always_inline]] inline double DifferenceOf(const T* __restrict a,
                                                  const T* __restrict b,
                                                  int64_t width,
                                                  int64_t pitch) {
  double lanes[16] = {};
  double rest = 0;
  for (int c = 0; c < kPairs; ++c) {
    const T* const __restrict own_a = a + c * pitch;
    const T* const __restrict own_b = b + c * pitch;
    int64_t w = 0;
    for (; w + 16 <= width; w += 16) {
      for (int lane = 0; lane < 16; ++lane) {
        const T difference = own_a[w + lane] - own_b[w + lane];
        lanes[lane] += difference * difference;
      }
    }
    for (; w < width; ++w) {
      const T difference = own_a[w] - own_b[w];
      rest += difference * difference;
    }
  }
  for (int lane = 0; lane < 16; ++lane) rest += lanes[lane];
  return rest;
}
MIR_TARGET_CLONES double Difference(const float* a, const float* b,
                                    int64_t width, int64_t pitch) {
  return DifferenceOf(a, b, width, pitch);
}
MIR_TARGET_CLONES double Difference(const double* a, const double* b,
                                    int64_t width, int64_t pitch) {
  return DifferenceOf(a, b, width, pitch);
}

// The derivatives of that by b's similarities, times `scale`. With g the
// derivatives by the exponents, s the similarities, m the least and i the
// inverse variance, exponents are (m - s) i.
template <typename T>
[[gnu::always_inline]] inline void DifferentiateOf(
    const T* __restrict a, const T* __restrict b, const T* __restrict rows,
    const T* __restrict least, const T* __restrict inverse,
    const T* __restrict moves, T scale, int64_t width, int64_t pitch,
    T* __restrict by_mean, T* __restrict out) {
  for (int64_t w = 0; w < width; ++w) by_mean[w] = 0;
  for (int c = 0; c < kPairs; ++c) {
    const int64_t at = c * pitch;
    for (int64_t w = 0; w < width; ++w) {
      const T own = b[at + w];
      const T by_exponent = 2 * scale * (own - a[at + w]) * own;
      out[at + w] = -by_exponent * inverse[w];
      by_mean[w] += by_exponent * (rows[at + w] - least[w]);
    }
  }
  for (int64_t w = 0; w < width; ++w) {
    by_mean[w] *= moves[w] * inverse[w] * inverse[w] * (T(1) / kPairs);
  }
  // The least one takes away what the others bring; the first of equals.
#pragma GCC ivdep
  for (int64_t w = 0; w < width; ++w) {
    T sum = 0;
#pragma GCC unroll 12
    for (int c = 0; c < kPairs; ++c) {
      out[c * pitch + w] += by_mean[w];
      sum += out[c * pitch + w];
    }
    T left = sum;
#pragma GCC unroll 12
    for (int c = 0; c < kPairs; ++c) {
      const bool is_least = rows[c * pitch + w] == least[w];
      out[c * pitch + w] -= is_least ? left : T(0);
      left = is_least ? T(0) : left;
    }
  }
}
MIR_TARGET_CLONES void Differentiate(const float* a, const float* b,
                                     const float* rows, const float* least,
                                     const float* inverse, const float* moves,
                                     float scale, int64_t width, int64_t pitch,
                                     float* by_mean, float* out) {
  DifferentiateOf(a, b, rows, least, inverse, moves, scale, width, pitch,
                  by_mean, out);
}
MIR_TARGET_CLONES void Differentiate(const double* a, const double* b,
                                     const double* rows, const double* least,
                                     const double* inverse, const double* moves,
                                     double scale, int64_t width, int64_t pitch,
                                     double* by_mean, double* out) {
  DifferentiateOf(a, b, rows, least, inverse, moves, scale, width, pitch,
                  by_mean, out);
}

// Sends what a squared difference is multiplied with to both its voxels.
template <typename T>
[[gnu::always_inline]] inline void ToFirstOf(const T* __restrict factor,
                                             const T* __restrict first,
                                             const T* __restrict second, T sign,
                                             int64_t width, T* __restrict out) {
  for (int64_t w = 0; w < width; ++w) {
    out[w] += sign * factor[w] * (first[w] - second[w]);
  }
}
MIR_TARGET_CLONES void ToFirst(const float* factor, const float* first,
                               const float* second, float sign, int64_t width,
                               float* out) {
  ToFirstOf(factor, first, second, sign, width, out);
}
MIR_TARGET_CLONES void ToFirst(const double* factor, const double* first,
                               const double* second, double sign, int64_t width,
                               double* out) {
  ToFirstOf(factor, first, second, sign, width, out);
}

}  // namespace similarity_rows

namespace {

constexpr int kPairs = kSelfSimilarities;

// Slices per task: at most so many that its rows stay in the cache, at least
// some beside those that neighbouring tasks compute twice.
constexpr int64_t kMostSlices = 80;
constexpr int64_t kLeastSlices = 16;

int64_t Clamp(int64_t index, int64_t size) {
  return std::min(std::max<int64_t>(index, 0), size - 1);
}

// Memory that begins at a cache line, as vectors of it should.
template <typename T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};
  LineAllocator() = default;
  template <typename U>
  LineAllocator(const LineAllocator<U>&) {}
  T* allocate(size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), kLine));
  }
  void deallocate(T* memory, size_t) { ::operator delete(memory, kLine); }
  bool operator==(const LineAllocator&) const { return true; }
  bool operator!=(const LineAllocator&) const { return false; }
};
template <typename T>
using Buffer = std::vector<T, LineAllocator<T>>;

// A count of elements that fills cache lines.
int64_t InLines(int64_t count) { return (count + 15) / 16 * 16; }

// Rows of one width, each with room for `padding` elements on both sides; they
// begin at cache lines.
template <typename T>
struct PaddedRows {
  PaddedRows(int64_t rows, int64_t width, int64_t padding)
      : pitch(InLines(width + 2 * padding)),
        lead(InLines(padding)),
        memory(lead + rows * pitch + lead) {}

  T* operator[](int64_t row) { return memory.data() + lead + row * pitch; }
  const T* operator[](int64_t row) const {
    return memory.data() + lead + row * pitch;
  }

  int64_t pitch, lead;
  Buffer<T> memory;
};

// Continues a row by its end elements on both sides.
template <typename T>
void Continue(int64_t width, int64_t padding, T* row) {
  std::fill(row - padding, row, row[0]);
  std::fill(row + width, row + width + padding, row[width - 1]);
}

template <typename T>
PaddedRows<T> Continued(const T* image, const std::array<int64_t, 3>& size,
                        int64_t padding) {
  const int64_t width = size[2];
  PaddedRows<T> padded(size[0] * size[1], width, padding);
  at::parallel_for(0, size[0] * size[1], 256, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::copy(image + row * width, image + (row + 1) * width, padded[row]);
      Continue(width, padding, padded[row]);
    }
  });
  return padded;
}

// out = the sum of row(i) times factor(i) over [begin, end); where `plain`, all
// factors are 1.
template <typename T, typename Row, typename Factor>
void SumRows(int64_t begin, int64_t end, const Row& row, bool plain,
             const Factor& factor, int64_t count, T* out) {
  if (plain && end - begin == 5) {
    const T* rows[5];
    for (int64_t i = begin; i < end; ++i) rows[i - begin] = row(i);
    similarity_rows::SumFiveRows(rows, count, out);
    return;
  }
  std::fill(out, out + count, T(0));
  for (int64_t i = begin; i < end; ++i) {
    similarity_rows::AddRow(row(i), static_cast<T>(factor(i)), count, out);
  }
}

// How often a box of `radius` about `from`, its places moved into the volume,
// covers `to`.
int64_t Times(int64_t to, int64_t from, int64_t size, int64_t radius) {
  int64_t times = 0;
  for (int64_t k = -radius; k <= radius; ++k) {
    times += Clamp(from + k, size) == to;
  }
  return times;
}

template <typename T>
class Comparison {
 public:
  Comparison(const std::array<int64_t, 3>& size, int64_t radius,
             int64_t dilation)
      : depth_(size[0]),
        height_(size[1]),
        width_(size[2]),
        radius_(radius),
        dilation_(dilation),
        length_(2 * radius + 1),
        pitch_(InLines(width_ + 2 * radius)),
        stride_(kPairs * pitch_) {}

  // The mean of the variance over the volume.
  double MeanVariance(const PaddedRows<T>& image) const;

  struct Bounds {
    explicit Bounds(double mean)
        // A constant image has none: its descriptor is 1 throughout.
        : low(static_cast<T>(mean > 0 ? mean * 1e-3 : 1)),
          high(static_cast<T>(mean > 0 ? mean * 1e3 : 1)) {}
    T low, high;
  };

  // Adds the differences of each of the slices [begin, end) to its sum. The
  // same bits wherever the volume is cut.
  void Slab(const PaddedRows<T>& a, const PaddedRows<T>& b,
            const Bounds& a_bounds, const Bounds& b_bounds, int64_t begin,
            int64_t end, double* sums, T* grad_b) const;

 private:
  // The rows that the similarities of one are made of.
  struct Workspace {
    explicit Workspace(const Comparison& of)
        : columns(of.length_ * of.stride_),
          padded(kPairs, of.width_, of.radius_),
          similarities(of.stride_) {}
    Buffer<T> columns;
    PaddedRows<T> padded;
    Buffer<T> similarities;
  };

  // Those of row h of slice d, [kPairs, pitch]; after those of row h - 1.
  const T* Similarities(const PaddedRows<T>& image, int64_t d, int64_t h,
                        Workspace* workspace) const;

  const T* Shifted(const PaddedRows<T>& image, int64_t d, int64_t h,
                   const std::array<int, 3>& offset) const {
    return image[Clamp(d + dilation_ * offset[0], depth_) * height_ +
                 Clamp(h + dilation_ * offset[1], height_)] +
           dilation_ * offset[2];
  }

  void ColumnSums(const PaddedRows<T>& image, int64_t d, int64_t h,
                  T* out) const;
  void AdjointBoxRow(const Buffer<T>& by_similarity, int64_t h,
                     PaddedRows<T>* padded, T* out) const;
  void ScatterSlice(const PaddedRows<T>& b, const Buffer<T>& ring,
                    int64_t slice, int64_t begin, int64_t end,
                    PaddedRows<T>* grad) const;

  const int64_t depth_, height_, width_, radius_, dilation_;
  const int64_t length_, pitch_, stride_;
};

// Squared differences of row (d, h) of each pair, summed along d.
template <typename T>
void Comparison<T>::ColumnSums(const PaddedRows<T>& image, int64_t d, int64_t h,
                               T* out) const {
  for (int c = 0; c < kPairs; ++c) {
    T* const row = out + c * pitch_;
    const NeighbourPair& pair = kNeighbourPairs[c];
    if (radius_ == 2) {
      const T *first[5], *second[5];
      for (int k = 0; k < 5; ++k) {
        const int64_t slice = Clamp(d + k - 2, depth_);
        first[k] = Shifted(image, slice, h, pair.first);
        second[k] = Shifted(image, slice, h, pair.second);
      }
      similarity_rows::SumFiveSquares(first, second, width_, row);
      continue;
    }
    std::fill(row, row + width_, T(0));
    for (int64_t k = -radius_; k <= radius_; ++k) {
      const int64_t slice = Clamp(d + k, depth_);
      similarity_rows::AddSquares(Shifted(image, slice, h, pair.first),
                                  Shifted(image, slice, h, pair.second), width_,
                                  row);
    }
  }
}

template <typename T>
const T* Comparison<T>::Similarities(const PaddedRows<T>& image, int64_t d,
                                     int64_t h, Workspace* workspace) const {
  const auto column = [&](int64_t row) {
    return workspace->columns.data() + row % length_ * stride_;
  };
  for (int64_t row = h == 0 ? 0 : h + radius_;
       row <= std::min(h + radius_, height_ - 1); ++row) {
    ColumnSums(image, d, row, column(row));
  }
  PaddedRows<T>& padded = workspace->padded;
  SumRows(
      h - radius_, h + radius_ + 1,
      [&](int64_t row) { return column(Clamp(row, height_)); },
      /*plain=*/true, [](int64_t) { return 1; }, stride_, padded[0]);
  for (int c = 0; c < kPairs; ++c) Continue(width_, radius_, padded[c]);
  similarity_rows::BoxRow(padded[0] - radius_, radius_,
                          static_cast<T>(1.0 / (length_ * length_ * length_)),
                          stride_, workspace->similarities.data());
  return workspace->similarities.data();
}

template <typename T>
double Comparison<T>::MeanVariance(const PaddedRows<T>& image) const {
  std::vector<double> sums(depth_);
  at::parallel_for(0, depth_, 1, [&](int64_t begin, int64_t end) {
    Workspace workspace(*this);
    Buffer<T> scratch(width_);
    for (int64_t d = begin; d < end; ++d) {
      for (int64_t h = 0; h < height_; ++h) {
        sums[d] +=
            similarity_rows::SumVariances(Similarities(image, d, h, &workspace),
                                          width_, pitch_, scratch.data());
      }
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total / (depth_ * height_ * width_);
}

// The adjoint of the sums along h and w, at row h of a slice whose last rows
// are given, each [kPairs, pitch] with zeros between.
template <typename T>
void Comparison<T>::AdjointBoxRow(const Buffer<T>& by_similarity, int64_t h,
                                  PaddedRows<T>* padded, T* out) const {
  SumRows(
      std::max<int64_t>(h - radius_, 0), std::min(h + radius_ + 1, height_),
      [&](int64_t row) {
        return by_similarity.data() + row % length_ * stride_;
      },
      h > 0 && h + 1 < height_,
      [&](int64_t row) { return Times(h, row, height_, radius_); }, stride_,
      (*padded)[0]);
  similarity_rows::BoxRow((*padded)[0] - radius_, radius_, T(1), stride_, out);
  // Boxes that reach beyond an end read it again.
  for (int c = 0; c < kPairs; ++c) {
    const T* const in = (*padded)[c];
    T* const row = out + c * pitch_;
    for (int64_t w = 0; w < std::min(radius_, width_); ++w) {
      row[0] += static_cast<T>(radius_ - w) * in[w];
      row[width_ - 1] += static_cast<T>(radius_ - w) * in[width_ - 1 - w];
    }
  }
}

// Sends the derivatives by the squared differences of one slice to the voxels
// of slices [begin, end).
template <typename T>
void Comparison<T>::ScatterSlice(const PaddedRows<T>& b, const Buffer<T>& ring,
                                 int64_t slice, int64_t begin, int64_t end,
                                 PaddedRows<T>* grad) const {
  const auto is_own = [&](int64_t d) { return d >= begin && d < end; };
  Buffer<T> factors(stride_);
  for (int64_t h = 0; h < height_; ++h) {
    SumRows(
        std::max<int64_t>(slice - radius_, 0),
        std::min(slice + radius_ + 1, depth_),
        [&](int64_t from) {
          return ring.data() + (from % length_ * height_ + h) * stride_;
        },
        slice > 0 && slice + 1 < depth_,
        [&](int64_t from) { return Times(slice, from, depth_, radius_); },
        stride_, factors.data());
    for (int c = 0; c < kPairs; ++c) {
      const NeighbourPair& pair = kNeighbourPairs[c];
      const T* const factor = factors.data() + c * pitch_;
      const T* const first = Shifted(b, slice, h, pair.first);
      const T* const second = Shifted(b, slice, h, pair.second);
      const auto send = [&](const std::array<int, 3>& offset, T sign) {
        const int64_t d = Clamp(slice + dilation_ * offset[0], depth_);
        if (!is_own(d)) return;
        const int64_t row = Clamp(h + dilation_ * offset[1], height_);
        similarity_rows::ToFirst(
            factor, first, second, sign, width_,
            (*grad)[(d - begin) * height_ + row] + dilation_ * offset[2]);
      };
      send(pair.first, T(2));
      send(pair.second, T(-2));
    }
  }
}

template <typename T>
void Comparison<T>::Slab(const PaddedRows<T>& a, const PaddedRows<T>& b,
                         const Bounds& a_bounds, const Bounds& b_bounds,
                         int64_t begin, int64_t end, double* sums,
                         T* grad_b) const {
  const bool gradient = grad_b != nullptr;
  const int64_t reach = gradient ? radius_ + dilation_ : 0;
  const int64_t first = std::max<int64_t>(begin - reach, 0);
  const int64_t last = std::min(end + reach, depth_);
  const int64_t first_scattered = std::max<int64_t>(begin - dilation_, 0);
  const int64_t last_scattered = std::min(end + dilation_, depth_);

  Workspace a_workspace(*this), b_workspace(*this);
  Buffer<T> least(width_), inverse(width_), moves(width_), by_mean(width_);
  Buffer<T> a_described(stride_), b_described(stride_);
  Buffer<T> by_similarity(gradient ? length_ * stride_ : 0);
  PaddedRows<T> summed(kPairs, width_, radius_);
  Buffer<T> ring(gradient ? length_ * height_ * stride_ : 0);
  PaddedRows<T> grad(gradient ? (end - begin) * height_ : 0, width_, dilation_);
  const T scale = static_cast<T>(1.0 / (length_ * length_ * length_));
  for (int64_t d = first; d < last; ++d) {
    // The adjoint sums lag behind the rows that they add up.
    for (int64_t h = 0; h < height_ + radius_; ++h) {
      if (h < height_) {
        similarity_rows::Describe(Similarities(a, d, h, &a_workspace), width_,
                                  pitch_, a_bounds.low, a_bounds.high,
                                  least.data(), inverse.data(), moves.data(),
                                  a_described.data());
        const T* const rows = Similarities(b, d, h, &b_workspace);
        similarity_rows::Describe(rows, width_, pitch_, b_bounds.low,
                                  b_bounds.high, least.data(), inverse.data(),
                                  moves.data(), b_described.data());
        if (d >= begin && d < end) {
          sums[d] += similarity_rows::Difference(
              a_described.data(), b_described.data(), width_, pitch_);
        }
        if (gradient) {
          similarity_rows::Differentiate(
              a_described.data(), b_described.data(), rows, least.data(),
              inverse.data(), moves.data(), scale, width_, pitch_,
              by_mean.data(), by_similarity.data() + h % length_ * stride_);
        }
      }
      if (gradient && h >= radius_) {
        AdjointBoxRow(
            by_similarity, h - radius_, &summed,
            ring.data() + (d % length_ * height_ + h - radius_) * stride_);
      }
    }
    if (!gradient) continue;
    const int64_t done = d - radius_;
    if (done >= first_scattered && done < last_scattered) {
      ScatterSlice(b, ring, done, begin, end, &grad);
    }
  }
  if (!gradient) return;
  // Where the volume ends, the last slices have seen all there is.
  for (int64_t done = std::max(last - radius_, first_scattered);
       done < last_scattered; ++done) {
    ScatterSlice(b, ring, done, begin, end, &grad);
  }
  for (int64_t row = 0; row < (end - begin) * height_; ++row) {
    const T* const in = grad[row];
    T* const out = grad_b + (begin * height_ + row) * width_;
    std::copy(in, in + width_, out);
    for (int64_t w = 0; w < dilation_; ++w) {
      out[0] += in[w - dilation_];
      out[width_ - 1] += in[width_ + w];
    }
  }
}

}  // namespace

template <typename T>
double CompareSelfSimilarities(const T* a, const T* b, int64_t volumes,
                               const std::array<int64_t, 3>& size,
                               int64_t radius, int64_t dilation, T* grad_b) {
  const Comparison<T> comparison(size, radius, dilation);
  const int64_t voxels = size[0] * size[1] * size[2];
  const int64_t threads = at::get_num_threads();
  const int64_t slices =
      std::clamp((size[0] + threads - 1) / threads, kLeastSlices, kMostSlices);
  const int64_t slabs = (size[0] + slices - 1) / slices;
  double total = 0;
  for (int64_t volume = 0; volume < volumes; ++volume) {
    const PaddedRows<T> own_a = Continued(a + volume * voxels, size, dilation);
    const PaddedRows<T> own_b = Continued(b + volume * voxels, size, dilation);
    const typename Comparison<T>::Bounds a_bounds(
        comparison.MeanVariance(own_a));
    const typename Comparison<T>::Bounds b_bounds(
        comparison.MeanVariance(own_b));
    std::vector<double> sums(size[0]);
    at::parallel_for(0, slabs, 1, [&](int64_t begin, int64_t end) {
      for (int64_t slab = begin; slab < end; ++slab) {
        comparison.Slab(own_a, own_b, a_bounds, b_bounds,
                        size[0] * slab / slabs, size[0] * (slab + 1) / slabs,
                        sums.data(),
                        grad_b ? grad_b + volume * voxels : nullptr);
      }
    });
    for (const double sum : sums) total += sum;
  }
  return total;
}

template double CompareSelfSimilarities<float>(const float*, const float*,
                                               int64_t,
                                               const std::array<int64_t, 3>&,
                                               int64_t, int64_t, float*);
template double CompareSelfSimilarities<double>(const double*, const double*,
                                                int64_t,
                                                const std::array<int64_t, 3>&,
                                                int64_t, int64_t, double*);

}  // namespace mir::losses::kernels
