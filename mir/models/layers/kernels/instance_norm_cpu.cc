#include "mir/models/layers/kernels/instance_norm_cpu.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "mir/base/target_clones.h"

namespace mir::models::kernels {

// What runs on a piece that fits the first cache.
namespace norm_pieces {

constexpr int kLanes = 32;

template <typename T>
[[gnu::always_inline]] inline double SumOf(const T (&lanes)[kLanes]) {
  double sum = 0;
  for (int j = 0; j < kLanes; ++j) sum += lanes[j];
  return sum;
}

// The sum of `x`, and that of its squared distances from its mean.
template <typename T>
[[gnu::always_inline]] inline void MomentsOf(const T* __restrict x,
                                             int64_t count, double& sum,
                                             double& squares) {
  const int64_t whole = count / kLanes * kLanes;
  T lanes[kLanes] = {};
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes[j] += x[i + j];
  }
  for (int64_t i = whole; i < count; ++i) lanes[i - whole] += x[i];
  sum = SumOf(lanes);
  const T mean = static_cast<T>(sum / count);
  for (int j = 0; j < kLanes; ++j) lanes[j] = 0;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      lanes[j] += (x[i + j] - mean) * (x[i + j] - mean);
    }
  }
  for (int64_t i = whole; i < count; ++i) {
    lanes[i - whole] += (x[i] - mean) * (x[i] - mean);
  }
  squares = SumOf(lanes);
}

// Normalised is (x - mean) * scale + shift; the mean first, which may be far
// larger than what remains.
template <typename T>
struct Affine {
  T mean, scale, shift;
};

template <typename T>
[[gnu::always_inline]] inline void ActivateOf(const T* __restrict x,
                                              int64_t count, Affine<T> affine,
                                              T slope, T* __restrict out) {
  for (int64_t i = 0; i < count; ++i) {
    const T z = (x[i] - affine.mean) * affine.scale + affine.shift;
    out[i] = z > 0 ? z : z * slope;
  }
}

// The sums of the gradient before the ReLU, and of that times x.
template <typename T>
[[gnu::always_inline]] inline void GradientSumsOf(
    const T* __restrict x, const T* __restrict gradient, int64_t count,
    Affine<T> affine, T slope, double& sum, double& along_x) {
  T lanes[kLanes] = {}, products[kLanes] = {};
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const T z = (x[i + j] - affine.mean) * affine.scale + affine.shift;
      const T g = gradient[i + j] * (z > 0 ? T{1} : slope);
      lanes[j] += g;
      products[j] += g * (x[i + j] - affine.mean);
    }
  }
  for (int64_t i = whole; i < count; ++i) {
    const T z = (x[i] - affine.mean) * affine.scale + affine.shift;
    const T g = gradient[i] * (z > 0 ? T{1} : slope);
    lanes[i - whole] += g;
    products[i - whole] += g * (x[i] - affine.mean);
  }
  sum = SumOf(lanes);
  along_x = SumOf(products);
}

// scale g - (x - mean) per_x - constant.
template <typename T>
[[gnu::always_inline]] inline void GradientOf(const T* __restrict x,
                                              const T* __restrict gradient,
                                              int64_t count, Affine<T> affine,
                                              T slope, T per_x, T constant,
                                              T* __restrict out) {
  for (int64_t i = 0; i < count; ++i) {
    const T z = (x[i] - affine.mean) * affine.scale + affine.shift;
    const T g = gradient[i] * (z > 0 ? T{1} : slope);
    out[i] = affine.scale * g - (x[i] - affine.mean) * per_x - constant;
  }
}

#define MIR_FOR_TYPE(T)                                                        \
  MIR_TARGET_CLONES void Moments(const T* x, int64_t count, double& sum,       \
                                 double& squares) {                            \
    MomentsOf(x, count, sum, squares);                                         \
  }                                                                            \
  MIR_TARGET_CLONES void Activate(const T* x, int64_t count, Affine<T> affine, \
                                  T slope, T* out) {                           \
    ActivateOf(x, count, affine, slope, out);                                  \
  }                                                                            \
  MIR_TARGET_CLONES void GradientSums(const T* x, const T* gradient,           \
                                      int64_t count, Affine<T> affine,         \
                                      T slope, double& sum, double& along_x) { \
    GradientSumsOf(x, gradient, count, affine, slope, sum, along_x);           \
  }                                                                            \
  MIR_TARGET_CLONES void Gradient(const T* x, const T* gradient,               \
                                  int64_t count, Affine<T> affine, T slope,    \
                                  T per_x, T constant, T* out) {               \
    GradientOf(x, gradient, count, affine, slope, per_x, constant, out);       \
  }
MIR_FOR_TYPE(float)
MIR_FOR_TYPE(double)
#undef MIR_FOR_TYPE

}  // namespace norm_pieces

namespace {

using norm_pieces::Affine;

constexpr int64_t kPiece = 4096;

// Calls `use(instance, first, count, piece)` for the pieces of all instances.
template <typename Use>
void ForPieces(int64_t instances, int64_t length, const Use& use) {
  const int64_t pieces = (length + kPiece - 1) / kPiece;
  at::parallel_for(
      0, instances * pieces, /*grain_size=*/4, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t first = i % pieces * kPiece;
          use(i / pieces, first, std::min(kPiece, length - first), i);
        }
      });
}

struct Sums {
  double first = 0, second = 0;
};

template <typename T>
Affine<T> AffineOf(const Instances<T>& x, int64_t instance, T mean,
                   T inverse_deviation) {
  const int64_t channel = instance % x.channels;
  const T weight = x.weight != nullptr ? x.weight[channel] : T{1};
  const T bias = x.bias != nullptr ? x.bias[channel] : T{0};
  return {mean, weight * inverse_deviation, bias};
}

}  // namespace

template <typename T>
void NormForward(const Instances<T>& x, T* out, T* mean, T* inverse_deviation) {
  const int64_t pieces = (x.length + kPiece - 1) / kPiece;
  std::vector<Sums> moments(x.count * pieces);
  ForPieces(x.count, x.length,
            [&](int64_t instance, int64_t first, int64_t count, int64_t piece) {
              norm_pieces::Moments(x.values + instance * x.length + first,
                                   count, moments[piece].first,
                                   moments[piece].second);
            });
  for (int64_t instance = 0; instance < x.count; ++instance) {
    const Sums* of_pieces = moments.data() + instance * pieces;
    double sum = 0, squares = 0;
    for (int64_t piece = 0; piece < pieces; ++piece) {
      sum += of_pieces[piece].first;
    }
    const double center = sum / x.length;
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const double count = std::min(kPiece, x.length - piece * kPiece);
      const double off = of_pieces[piece].first / count - center;
      squares += of_pieces[piece].second + count * off * off;
    }
    mean[instance] = static_cast<T>(center);
    inverse_deviation[instance] =
        static_cast<T>(1 / std::sqrt(squares / x.length + x.epsilon));
  }
  ForPieces(x.count, x.length,
            [&](int64_t instance, int64_t first, int64_t count, int64_t) {
              const int64_t at = instance * x.length + first;
              norm_pieces::Activate(x.values + at, count,
                                    AffineOf(x, instance, mean[instance],
                                             inverse_deviation[instance]),
                                    x.slope, out + at);
            });
}

template <typename T>
void NormBackward(const Instances<T>& x, const T* mean,
                  const T* inverse_deviation, const T* gradient, T* to_values,
                  T* to_weight, T* to_bias) {
  const int64_t pieces = (x.length + kPiece - 1) / kPiece;
  std::vector<Sums> of_pieces(x.count * pieces), sums(x.count);
  ForPieces(
      x.count, x.length,
      [&](int64_t instance, int64_t first, int64_t count, int64_t piece) {
        const int64_t at = instance * x.length + first;
        norm_pieces::GradientSums(
            x.values + at, gradient + at, count,
            AffineOf(x, instance, mean[instance], inverse_deviation[instance]),
            x.slope, of_pieces[piece].first, of_pieces[piece].second);
      });
  for (int64_t instance = 0; instance < x.count; ++instance) {
    for (int64_t piece = 0; piece < pieces; ++piece) {
      sums[instance].first += of_pieces[instance * pieces + piece].first;
      sums[instance].second += of_pieces[instance * pieces + piece].second;
    }
    const int64_t channel = instance % x.channels;
    if (to_weight != nullptr) {
      to_weight[channel] +=
          static_cast<T>(sums[instance].second * inverse_deviation[instance]);
    }
    if (to_bias != nullptr) {
      to_bias[channel] += static_cast<T>(sums[instance].first);
    }
  }
  if (to_values == nullptr) return;
  ForPieces(
      x.count, x.length,
      [&](int64_t instance, int64_t first, int64_t count, int64_t) {
        const int64_t at = instance * x.length + first;
        const double inverse = inverse_deviation[instance];
        const Affine<T> affine =
            AffineOf(x, instance, mean[instance], inverse_deviation[instance]);
        const double scale = affine.scale / static_cast<double>(x.length);
        norm_pieces::Gradient(
            x.values + at, gradient + at, count, affine, x.slope,
            static_cast<T>(scale * sums[instance].second * inverse * inverse),
            static_cast<T>(scale * sums[instance].first), to_values + at);
      });
}

#define MIR_INSTANTIATE(T)                                               \
  template void NormForward<T>(const Instances<T>&, T*, T*, T*);         \
  template void NormBackward<T>(const Instances<T>&, const T*, const T*, \
                                const T*, T*, T*, T*);
MIR_INSTANTIATE(float)
MIR_INSTANTIATE(double)
#undef MIR_INSTANTIATE

}  // namespace mir::models::kernels
