#include "mir/losses/kernels/parzen.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "mir/base/target_clones.h"

// Where a processor has no vectors of this length g++ makes them up of parts,
// and then takes those for read before they are written.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace mir::losses::kernels {

namespace parzen_rows {

// Voxels that are located before they are summed.
constexpr int64_t kBlock = 512;

// Terms of a cell's sums in T before they go to float64.
constexpr int kFlushAfter = 128;

template <typename T>
struct Located {
  alignas(64) int32_t cell[kBlock];
  alignas(64) T offset[kBlock];
};

template <typename T>
[[gnu::always_inline]] inline void LocateOf(const T* __restrict values,
                                            int64_t count,
                                            const ParzenCells& cells,
                                            Located<T>* __restrict out) {
  const double low = cells.low, high = cells.high;
  const double start = cells.start, inverse_width = cells.inverse_width;
  const int32_t last = static_cast<int32_t>(cells.cells - 1);
  for (int64_t i = 0; i < count; ++i) {
    const double value = values[i];
    const double above = value > low ? value : low;
    const double inside = above < high ? above : high;
    // Float64: a float's rounding shows in the slope.
    const double place = (inside - start) * inverse_width;
    const int32_t whole = static_cast<int32_t>(place);
    const int32_t cell = whole < last ? whole : last;
    out->cell[i] = cell;
    out->offset[i] = static_cast<T>(place - cell - 0.5);
  }
}
MIR_TARGET_CLONES void Locate(const float* values, int64_t count,
                              const ParzenCells& cells, Located<float>* out) {
  LocateOf(values, count, cells, out);
}
MIR_TARGET_CLONES void Locate(const double* values, int64_t count,
                              const ParzenCells& cells, Located<double>* out) {
  LocateOf(values, count, cells, out);
}

// The one cell of an image whose intensities themselves are the offsets.
template <typename T>
void LocateValues(const T* values, int64_t count, double start,
                  Located<T>* out) {
  std::fill(out->cell, out->cell + count, 0);
  for (int64_t i = 0; i < count; ++i) {
    out->offset[i] = static_cast<T>(values[i] - start);
  }
}

template <typename T>
struct Vector;
template <>
struct Vector<float> {
  typedef float type
      __attribute__((vector_size(32), aligned(4), __may_alias__));
};
template <>
struct Vector<double> {
  typedef double type
      __attribute__((vector_size(64), aligned(8), __may_alias__));
};

// base to the power of lane / kDivisor % kModulus in each lane, by the
// exponents' binary digits: without a detour through memory, which would stall.
template <int kDivisor, int kModulus, typename T>
struct Raised {
  using V = typename Vector<T>::type;

  template <int kDigit>
  [[gnu::always_inline]] static void Multiply(T power, V* result) {
    constexpr int kMost = std::min(7 / kDivisor, kModulus - 1);
    if constexpr (kDigit <= kMost) {
      const V takes = {Has<kDigit>(0), Has<kDigit>(1), Has<kDigit>(2),
                       Has<kDigit>(3), Has<kDigit>(4), Has<kDigit>(5),
                       Has<kDigit>(6), Has<kDigit>(7)};
      *result *= takes * power + (1 - takes);
      Multiply<2 * kDigit>(power * power, result);
    }
  }

  [[gnu::always_inline]] static void Write(T base, V* result) {
    *result = V{1, 1, 1, 1, 1, 1, 1, 1};
    Multiply<1>(base, result);
  }

 private:
  template <int kDigit>
  static constexpr T Has(int lane) {
    return (lane / kDivisor % kModulus & kDigit) != 0 ? 1 : 0;
  }
};

// Eight products of powers s^p t^q at a time, of P * Q: q runs fastest.
template <int P, int Q, typename T>
struct Powers {
  using V = typename Vector<T>::type;
  static constexpr int kRows = 8 / Q;  // Powers of s in a vector.
  static constexpr int kVectors = P / kRows;

  [[gnu::always_inline]] Powers(T s, T t) : step(s) {
    Raised<Q, 8, T>::Write(s, &first);
    Raised<1, Q, T>::Write(t, &inner);
    for (int rows = 1; rows < kRows; rows *= 2) step *= step;
  }

  V first = {};  // Of s.
  V inner = {};  // Of t.
  T step;        // From one vector's powers of s to the next one's.
};

template <typename T>
[[gnu::always_inline]] inline T SumOf(const typename Vector<T>::type& v) {
  const auto halves = v + __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
  const auto pairs =
      halves + __builtin_shufflevector(halves, halves, 1, 0, 3, 2, 5, 4, 7, 6);
  return pairs[0] + pairs[2];
}

// Adds a block to the cells' sums, and those that grow long to `totals`.
template <int P, int Q, typename T>
[[gnu::always_inline]] inline void AddOf(const Located<T>& x,
                                         const Located<T>& y, const T* weight,
                                         int64_t count, int64_t y_cells,
                                         T* __restrict sums,
                                         uint8_t* __restrict terms,
                                         double* __restrict totals) {
  using Product = Powers<P, Q, T>;
  using V = typename Product::V;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t pair = x.cell[i] * y_cells + y.cell[i];
    Product powers(x.offset[i], y.offset[i]);
    if (weight) powers.inner *= weight[i];
    V* const own = reinterpret_cast<V*>(sums + pair * (P * Q));
    V outer = powers.first;
    for (int v = 0; v < Product::kVectors; ++v) {
      own[v] += outer * powers.inner;
      outer *= powers.step;
    }
    if (++terms[pair] == kFlushAfter) {
      terms[pair] = 0;
      T* const flushed = sums + pair * (P * Q);
      double* const total = totals + pair * (P * Q);
      for (int k = 0; k < P * Q; ++k) {
        total[k] += flushed[k];
        flushed[k] = 0;
      }
    }
  }
}

template <int P, int Q, typename T>
[[gnu::always_inline]] inline T SlopeAt(const T* slopes, int64_t pair, T s,
                                        T t) {
  using Product = Powers<P, Q, T>;
  using V = typename Product::V;
  const Product powers(s, t);
  const V* const own = reinterpret_cast<const V*>(slopes + pair * (P * Q));
  V outer = powers.first;
  V sum = outer * own[0];
  for (int v = 1; v < Product::kVectors; ++v) {
    outer *= powers.step;
    sum += outer * own[v];
  }
  return SumOf<T>(sum * powers.inner);
}

template <int P, int Q, typename T>
[[gnu::always_inline]] inline void SlopesOf(
    const Located<T>& x, const Located<T>& y, int64_t count, int64_t y_cells,
    bool sum_x, bool sum_y, const T* __restrict slopes, T* __restrict out) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t pair = x.cell[i] * y_cells + y.cell[i];
    const T s = x.offset[i], t = y.offset[i];
    T slope = SlopeAt<P, Q>(slopes, pair, s, t);
    if (sum_x && s == T(-0.5) && x.cell[i] > 0) {
      slope += SlopeAt<P, Q>(slopes, pair - y_cells, T(0.5), t);
    }
    if (sum_y && t == T(-0.5) && y.cell[i] > 0) {
      slope += SlopeAt<P, Q>(slopes, pair - 1, s, T(0.5));
    }
    out[i] = slope;
  }
}

#define MIR_PARZEN_ROWS(P, Q, T)                                             \
  MIR_TARGET_CLONES void Add##P##Q(const Located<T>& x, const Located<T>& y, \
                                   const T* weight, int64_t count,           \
                                   int64_t y_cells, T* sums, uint8_t* terms, \
                                   double* totals) {                         \
    AddOf<P, Q, T>(x, y, weight, count, y_cells, sums, terms, totals);       \
  }                                                                          \
  MIR_TARGET_CLONES void Slopes##P##Q(                                       \
      const Located<T>& x, const Located<T>& y, int64_t count,               \
      int64_t y_cells, bool sum_x, bool sum_y, const T* slopes, T* out) {    \
    SlopesOf<P, Q, T>(x, y, count, y_cells, sum_x, sum_y, slopes, out);      \
  }
MIR_PARZEN_ROWS(8, 8, float)
MIR_PARZEN_ROWS(8, 8, double)
MIR_PARZEN_ROWS(8, 2, float)
MIR_PARZEN_ROWS(8, 2, double)
MIR_PARZEN_ROWS(4, 4, float)
MIR_PARZEN_ROWS(4, 4, double)
MIR_PARZEN_ROWS(4, 2, float)
MIR_PARZEN_ROWS(4, 2, double)
#undef MIR_PARZEN_ROWS

// Weights slopes, takes away those of clamped intensities, and writes or adds
// the rest.
template <typename T>
[[gnu::always_inline]] inline void FinishOf(T* __restrict slopes,
                                            const T* __restrict values,
                                            const T* __restrict weight,
                                            int64_t count, double low,
                                            double high, bool add,
                                            T* __restrict out) {
  for (int64_t i = 0; i < count; ++i) {
    slopes[i] = values[i] >= low && values[i] <= high ? slopes[i] : T(0);
  }
  if (weight) {
    for (int64_t i = 0; i < count; ++i) slopes[i] *= weight[i];
  }
  if (add) {
    for (int64_t i = 0; i < count; ++i) out[i] += slopes[i];
  } else {
    for (int64_t i = 0; i < count; ++i) out[i] = slopes[i];
  }
}
MIR_TARGET_CLONES void Finish(float* slopes, const float* values,
                              const float* weight, int64_t count, double low,
                              double high, bool add, float* out) {
  FinishOf(slopes, values, weight, count, low, high, add, out);
}
MIR_TARGET_CLONES void Finish(double* slopes, const double* values,
                              const double* weight, int64_t count, double low,
                              double high, bool add, double* out) {
  FinishOf(slopes, values, weight, count, low, high, add, out);
}

}  // namespace parzen_rows

namespace {

using parzen_rows::kBlock;
using parzen_rows::Located;

// Parts of a volume that are summed by themselves: few, since each has a table,
// and as many for every number of threads.
constexpr int64_t kParts = 16;
constexpr int64_t kLeastPart = 1 << 15;
// Fewer where tables are large: numbers in all of them, at most.
constexpr int64_t kMostNumbers = 1 << 23;

template <typename T>
void LocateIn(const T* values, int64_t count, const ParzenCells& cells,
              Located<T>* out) {
  if (cells.cells == 1) {
    parzen_rows::LocateValues(values, count, cells.start, out);
  } else {
    parzen_rows::Locate(values, count, cells, out);
  }
}

int Key(const ParzenOrders& orders) { return orders.x * 10 + orders.y; }

template <typename T>
using Adder = void (*)(const Located<T>&, const Located<T>&, const T*, int64_t,
                       int64_t, T*, uint8_t*, double*);
template <typename T>
using Sloper = void (*)(const Located<T>&, const Located<T>&, int64_t, int64_t,
                        bool, bool, const T*, T*);

template <typename T>
Adder<T> AdderFor(const ParzenOrders& orders) {
  switch (Key(orders)) {
    case 88:
      return parzen_rows::Add88;
    case 82:
      return parzen_rows::Add82;
    case 44:
      return parzen_rows::Add44;
    default:
      return parzen_rows::Add42;
  }
}

template <typename T>
Sloper<T> SloperFor(const ParzenOrders& orders) {
  switch (Key(orders)) {
    case 88:
      return parzen_rows::Slopes88;
    case 82:
      return parzen_rows::Slopes82;
    case 44:
      return parzen_rows::Slopes44;
    default:
      return parzen_rows::Slopes42;
  }
}

}  // namespace

bool HasParzenKernel(const ParzenOrders& orders) {
  const int key = Key(orders);
  return key == 88 || key == 82 || key == 44 || key == 42;
}

template <typename T>
std::vector<double> ParzenMoments(const T* x, const T* y, const T* weight,
                                  int64_t volumes, int64_t count,
                                  const ParzenCells& x_cells,
                                  const ParzenCells& y_cells,
                                  const ParzenOrders& orders) {
  const int64_t pairs = x_cells.cells * y_cells.cells;
  const int64_t table = pairs * orders.x * orders.y;
  const int64_t most =
      std::clamp<int64_t>(kMostNumbers / (volumes * table), 1, kParts);
  const int64_t parts =
      std::clamp<int64_t>((count + kLeastPart - 1) / kLeastPart, 1, most);
  const Adder<T> add = AdderFor<T>(orders);
  std::vector<double> partial(volumes * parts * table, 0.0);
  at::parallel_for(0, volumes * parts, 1, [&](int64_t begin, int64_t end) {
    std::vector<T> sums(table, T(0));
    std::vector<uint8_t> terms(pairs, 0);
    Located<T> x_at, y_at;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t volume = task / parts, part = task % parts;
      double* const totals = partial.data() + task * table;
      const int64_t last = count * (part + 1) / parts;
      for (int64_t i = count * part / parts; i < last; i += kBlock) {
        const int64_t block = std::min(kBlock, last - i);
        const int64_t at = volume * count + i;
        LocateIn(x + at, block, x_cells, &x_at);
        LocateIn(y + at, block, y_cells, &y_at);
        add(x_at, y_at, weight ? weight + at : nullptr, block, y_cells.cells,
            sums.data(), terms.data(), totals);
      }
      for (int64_t k = 0; k < table; ++k) {
        totals[k] += sums[k];
        sums[k] = 0;
      }
      std::fill(terms.begin(), terms.end(), 0);
    }
  });
  if (parts == 1) return partial;
  std::vector<double> moments(volumes * table, 0.0);
  for (int64_t task = 0; task < volumes * parts; ++task) {
    double* const own = moments.data() + task / parts * table;
    const double* const one = partial.data() + task * table;
    for (int64_t k = 0; k < table; ++k) own[k] += one[k];
  }
  return moments;
}

template <typename T>
void ParzenSlopes(const T* x, const T* y, const T* weight, int64_t volumes,
                  int64_t count, const ParzenCells& x_cells,
                  const ParzenCells& y_cells, const ParzenOrders& orders,
                  const std::vector<T>& slopes, bool by_x, bool add, T* out) {
  const int64_t table = x_cells.cells * y_cells.cells * orders.x * orders.y;
  const Sloper<T> slope = SloperFor<T>(orders);
  const ParzenCells& own_cells = by_x ? x_cells : y_cells;
  const T* const own = by_x ? x : y;
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  at::parallel_for(0, volumes * blocks, 64, [&](int64_t begin, int64_t end) {
    Located<T> x_at, y_at;
    T own_slopes[kBlock];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t volume = task / blocks;
      const int64_t i = task % blocks * kBlock;
      const int64_t block = std::min(kBlock, count - i);
      const int64_t at = volume * count + i;
      LocateIn(x + at, block, x_cells, &x_at);
      LocateIn(y + at, block, y_cells, &y_at);
      slope(x_at, y_at, block, y_cells.cells, by_x && x_cells.sum_slopes,
            !by_x && y_cells.sum_slopes, slopes.data() + volume * table,
            own_slopes);
      parzen_rows::Finish(own_slopes, own + at, weight ? weight + at : nullptr,
                          block, own_cells.low, own_cells.high, add, out + at);
    }
  });
}

#define MIR_INSTANTIATE(T)                                                \
  template std::vector<double> ParzenMoments<T>(                          \
      const T*, const T*, const T*, int64_t, int64_t, const ParzenCells&, \
      const ParzenCells&, const ParzenOrders&);                           \
  template void ParzenSlopes<T>(const T*, const T*, const T*, int64_t,    \
                                int64_t, const ParzenCells&,              \
                                const ParzenCells&, const ParzenOrders&,  \
                                const std::vector<T>&, bool, bool, T*);
MIR_INSTANTIATE(float)
MIR_INSTANTIATE(double)
#undef MIR_INSTANTIATE

}  // namespace mir::losses::kernels
