#include "mir/models/layers/kernels/double_resolution_cpu.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "mir/base/target_clones.h"

namespace mir::models::kernels {

namespace doubling_rows {

// Places that read a value: at most so many in a row.
constexpr int64_t kMostReaders = 5;

template <typename T>
[[gnu::always_inline]] inline void ExpandOf(const T* __restrict row,
                                            const int32_t* __restrict lower,
                                            const int32_t* __restrict upper,
                                            const T* __restrict weight,
                                            int64_t count, T* __restrict out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = (1 - weight[i]) * row[lower[i]] + weight[i] * row[upper[i]];
  }
}

template <typename T>
[[gnu::always_inline]] inline void MixOf(const T* __restrict lower,
                                         const T* __restrict upper, T weight,
                                         int64_t count, T* __restrict out) {
  const T rest = 1 - weight;
  for (int64_t i = 0; i < count; ++i) {
    out[i] = rest * lower[i] + weight * upper[i];
  }
}

template <typename T>
[[gnu::always_inline]] inline void AddOf(const T* __restrict row, T weight,
                                         int64_t count, T* __restrict sum) {
  for (int64_t i = 0; i < count; ++i) sum[i] += weight * row[i];
}

// `weights` [kMostReaders][count].
template <typename T>
[[gnu::always_inline]] inline void ContractOf(const T* __restrict row,
                                              const int32_t* __restrict first,
                                              const T* __restrict weights,
                                              int64_t count,
                                              T* __restrict out) {
  for (int64_t i = 0; i < count; ++i) out[i] = 0;
  for (int64_t k = 0; k < kMostReaders; ++k) {
    for (int64_t i = 0; i < count; ++i) {
      out[i] += weights[k * count + i] * row[first[i] + k];
    }
  }
}

#define MIR_FOR_TYPE(T)                                                       \
  MIR_TARGET_CLONES void Expand(const T* row, const int32_t* lower,           \
                                const int32_t* upper, const T* weight,        \
                                int64_t count, T* out) {                      \
    ExpandOf(row, lower, upper, weight, count, out);                          \
  }                                                                           \
  MIR_TARGET_CLONES void Mix(const T* lower, const T* upper, T weight,        \
                             int64_t count, T* out) {                         \
    MixOf(lower, upper, weight, count, out);                                  \
  }                                                                           \
  MIR_TARGET_CLONES void Add(const T* row, T weight, int64_t count, T* sum) { \
    AddOf(row, weight, count, sum);                                           \
  }                                                                           \
  MIR_TARGET_CLONES void Contract(const T* row, const int32_t* first,         \
                                  const T* weights, int64_t count, T* out) {  \
    ContractOf(row, first, weights, count, out);                              \
  }
MIR_FOR_TYPE(float)
MIR_FOR_TYPE(double)
#undef MIR_FOR_TYPE

}  // namespace doubling_rows

namespace {

using doubling_rows::kMostReaders;

// Which two values each place along an axis reads: (1 - weight) of `lower` and
// `weight` of `upper`.
template <typename T>
struct Axis {
  Axis(int64_t size, bool align_corners) {
    for (int64_t i = 0; i < 2 * size; ++i) {
      // As LibTorch, in T.
      const T at = align_corners
                       ? (static_cast<T>(size - 1) / (2 * size - 1)) * i
                       : std::max<T>((i + T(0.5)) * T(0.5) - T(0.5), 0);
      const auto below = std::min(static_cast<int64_t>(at), size - 1);
      lower.push_back(static_cast<int32_t>(below));
      upper.push_back(static_cast<int32_t>(std::min(below + 1, size - 1)));
      weight.push_back(std::min<T>(std::max<T>(at - below, 0), 1));
    }
  }

  std::vector<int32_t> lower, upper;
  std::vector<T> weight;
};

// Which places read each value, kMostReaders from `first` on, and with what
// weight: [kMostReaders][size].
template <typename T>
struct Readers {
  Readers(const Axis<T>& axis, int64_t size)
      : first(size), weights(kMostReaders * size) {
    const auto places = static_cast<int64_t>(axis.weight.size());
    std::vector<int64_t> seen(size, places);
    for (int64_t i = places; i-- > 0;) seen[axis.upper[i]] = i;
    for (int64_t i = places; i-- > 0;) {
      seen[axis.lower[i]] = std::min(seen[axis.lower[i]], i);
    }
    for (int64_t i = 0; i < size; ++i) {
      first[i] = static_cast<int32_t>(
          std::min(seen[i], std::max<int64_t>(places - kMostReaders, 0)));
    }
    for (int64_t i = 0; i < places; ++i) {
      const int64_t lower = axis.lower[i], upper = axis.upper[i];
      weights[(i - first[lower]) * size + lower] += 1 - axis.weight[i];
      weights[(i - first[upper]) * size + upper] += axis.weight[i];
    }
  }

  std::vector<int32_t> first;
  std::vector<T> weights;
};

constexpr int64_t kPlanes = 8;  // Of the smaller volume, per task.

// Calls `use(channel, first, last)` for slabs of planes.
template <typename Use>
void ForSlabs(int64_t channels, int64_t planes, const Use& use) {
  const int64_t slabs = (planes + kPlanes - 1) / kPlanes;
  at::parallel_for(0, channels * slabs, /*grain_size=*/1,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       const int64_t first = i % slabs * kPlanes;
                       use(i / slabs, first, std::min(first + kPlanes, planes));
                     }
                   });
}

}  // namespace

template <typename T>
void DoubleForward(const T* x, int64_t channels,
                   const std::array<int64_t, 3>& size, bool align_corners,
                   T* out) {
  const auto [depth, height, width] = size;
  const Axis<T> along_d(depth, align_corners), along_h(height, align_corners),
      along_w(width, align_corners);
  const int64_t plane = 4 * height * width;  // Of the larger volume.
  ForSlabs(channels, depth, [&](int64_t channel, int64_t first, int64_t last) {
    const T* volume = x + channel * depth * height * width;
    T* to = out + channel * 2 * depth * plane;
    std::vector<T> rows(2 * height * width), planes[2];
    int64_t held[2] = {-1, -1};
    for (std::vector<T>& p : planes) p.resize(plane);
    // Plane d of the smaller volume, doubled along h and w.
    const auto doubled = [&](int64_t d) -> const T* {
      const int64_t slot = d % 2;
      T* result = planes[slot].data();
      if (held[slot] == d) return result;
      held[slot] = d;
      for (int64_t h = 0; h < height; ++h) {
        doubling_rows::Expand(volume + (d * height + h) * width,
                              along_w.lower.data(), along_w.upper.data(),
                              along_w.weight.data(), 2 * width,
                              rows.data() + h * 2 * width);
      }
      for (int64_t h = 0; h < 2 * height; ++h) {
        doubling_rows::Mix(rows.data() + along_h.lower[h] * 2 * width,
                           rows.data() + along_h.upper[h] * 2 * width,
                           along_h.weight[h], 2 * width,
                           result + h * 2 * width);
      }
      return result;
    };
    for (int64_t d = 2 * first; d < 2 * last; ++d) {
      const T* lower = doubled(along_d.lower[d]);
      const T* upper = doubled(along_d.upper[d]);
      doubling_rows::Mix(lower, upper, along_d.weight[d], plane,
                         to + d * plane);
    }
  });
}

template <typename T>
void DoubleBackward(const T* gradient, int64_t channels,
                    const std::array<int64_t, 3>& size, bool align_corners,
                    T* to_x) {
  const auto [depth, height, width] = size;
  const Readers<T> along_d(Axis<T>(depth, align_corners), depth),
      along_h(Axis<T>(height, align_corners), height),
      along_w(Axis<T>(width, align_corners), width);
  const int64_t plane = 4 * height * width;
  ForSlabs(channels, depth, [&](int64_t channel, int64_t first, int64_t last) {
    const T* from = gradient + channel * 2 * depth * plane;
    T* volume = to_x + channel * depth * height * width;
    // Behind them, what the last values' readers may lie behind a short axis.
    std::vector<T> sum(plane), row(2 * width + kMostReaders);
    for (int64_t d = first; d < last; ++d) {
      std::fill(sum.begin(), sum.end(), T{0});
      for (int64_t k = 0; k < kMostReaders; ++k) {
        const T weight = along_d.weights[k * depth + d];
        if (weight == 0) continue;
        doubling_rows::Add(from + (along_d.first[d] + k) * plane, weight, plane,
                           sum.data());
      }
      for (int64_t h = 0; h < height; ++h) {
        std::fill(row.begin(), row.end(), T{0});
        for (int64_t k = 0; k < kMostReaders; ++k) {
          const T weight = along_h.weights[k * height + h];
          if (weight == 0) continue;
          doubling_rows::Add(sum.data() + (along_h.first[h] + k) * 2 * width,
                             weight, 2 * width, row.data());
        }
        doubling_rows::Contract(row.data(), along_w.first.data(),
                                along_w.weights.data(), width,
                                volume + (d * height + h) * width);
      }
    }
  });
}

#define MIR_INSTANTIATE(T)                                                 \
  template void DoubleForward<T>(const T*, int64_t,                        \
                                 const std::array<int64_t, 3>&, bool, T*); \
  template void DoubleBackward<T>(const T*, int64_t,                       \
                                  const std::array<int64_t, 3>&, bool, T*);
MIR_INSTANTIATE(float)
MIR_INSTANTIATE(double)
#undef MIR_INSTANTIATE

}  // namespace mir::models::kernels
