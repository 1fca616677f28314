#include "mir/models/layers/kernels/convolve3_cpu.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "mir/models/layers/kernels/convolve3_strip.h"

namespace mir::models::kernels {

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define MIR_STRIP_ALL_TARGETS 1
#else
#define MIR_STRIP_ALL_TARGETS 0
#endif

#if MIR_STRIP_ALL_TARGETS
namespace avx512 {
#define MIR_STRIP_TARGET __attribute__((target("avx512f")))
#define MIR_STRIP_BYTES 64
#include "mir/models/layers/kernels/convolve3_strip.inc"
#undef MIR_STRIP_TARGET
#undef MIR_STRIP_BYTES
}  // namespace avx512

namespace avx2 {
#define MIR_STRIP_TARGET __attribute__((target("avx2,fma")))
#define MIR_STRIP_BYTES 32
#include "mir/models/layers/kernels/convolve3_strip.inc"
#undef MIR_STRIP_TARGET
#undef MIR_STRIP_BYTES
}  // namespace avx2
#endif

namespace baseline {
#define MIR_STRIP_TARGET
#define MIR_STRIP_BYTES 16
#include "mir/models/layers/kernels/convolve3_strip.inc"
#undef MIR_STRIP_TARGET
#undef MIR_STRIP_BYTES
}  // namespace baseline

namespace {

template <typename T>
const StripKernels<T>& Kernels() {
#if MIR_STRIP_ALL_TARGETS
  if (__builtin_cpu_supports("avx512f")) return avx512::kKernels<T>;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return avx2::kKernels<T>;
  }
#endif
  return baseline::kKernels<T>;
}

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Zeros that begin with a cache line.
template <typename T>
class Scratch {
 public:
  explicit Scratch(int64_t count)
      : memory_(count + kLine, T{0}),
        begin_(memory_.data() +
               (kLine -
                reinterpret_cast<uintptr_t>(memory_.data()) % 64 / sizeof(T)) %
                   kLine) {}
  T* get() { return begin_; }

 private:
  static constexpr int64_t kLine = 64 / sizeof(T);
  std::vector<T> memory_;
  T* begin_;
};

// Lines of `frequencies` frequencies and `channels` channels, each with room
// for `length` values.
template <typename T>
class ScratchLines {
 public:
  ScratchLines(int64_t frequencies, int64_t channels, int64_t length)
      : length_(RoundUp(length, 64 / sizeof(T))),
        // Of one channel, frequencies must not fall onto the same cache sets.
        frequency_(length_ * channels + 64 / sizeof(T)),
        memory_(frequency_ * frequencies) {}
  Lines<T> get() { return {memory_.get(), length_, frequency_}; }

 private:
  int64_t length_, frequency_;
  Scratch<T> memory_;
};

// How a volume is cut into strips.
class Strips {
 public:
  Strips(const VolumeSize& size, int64_t tiles)
      : planes_((size[0] + 1) / 2),
        rows_((size[1] + 1) / 2),
        per_plane_((rows_ + tiles - 1) / tiles) {}

  int64_t count() const { return planes_ * per_plane_; }
  int64_t most_tiles() const { return (rows_ + per_plane_ - 1) / per_plane_; }
  Strip operator[](int64_t i) const {
    const int64_t part = i % per_plane_;
    const int64_t first = part * rows_ / per_plane_;
    return {2 * (i / per_plane_), 2 * first,
            (part + 1) * rows_ / per_plane_ - first};
  }

 private:
  int64_t planes_, rows_, per_plane_;
};

// Tiles in a line of about `length` values.
int64_t TilesIn(int64_t length, const VolumeSize& size) {
  return std::max<int64_t>(length / (size[2] + 1), 1);
}

template <typename T>
Source<T> SourceOf(const Channels<T>& channels, const Channels<T>& activated,
                   T slope, const VolumeSize& size, const T* zeros) {
  return {channels.data(), activated.empty() ? nullptr : activated.data(),
          slope,           static_cast<int64_t>(channels.size()),
          size[0],         size[1],
          size[2],         zeros};
}

// Transforms three weights along one axis, `stride` apart: G of F(2, 3).
template <typename T>
void TransformWeights(const T* x, int64_t stride, T* out, int64_t out_stride) {
  const T x0 = x[0], x1 = x[stride], x2 = x[2 * stride];
  out[0] = x0;
  out[out_stride] = (x0 + x1 + x2) / 2;
  out[2 * out_stride] = (x0 - x1 + x2) / 2;
  out[3 * out_stride] = x2;
}

// The transpose of that.
template <typename T>
void TransformBack(const T* x, int64_t stride, T* out, int64_t out_stride) {
  const T x0 = x[0], x1 = x[stride], x2 = x[2 * stride], x3 = x[3 * stride];
  out[0] = x0 + (x1 + x2) / 2;
  out[out_stride] = (x1 - x2) / 2;
  out[2 * out_stride] = x3 + (x1 + x2) / 2;
}

// For ForwardStrip. `flip`: for the gradient to the input, whose inputs are the
// outputs.
template <typename T>
std::vector<T> TransformedWeights(const T* weight, int64_t inputs,
                                  int64_t outputs, bool flip) {
  const int64_t groups = (outputs + kGroup - 1) / kGroup;
  std::vector<T> result(kFrequencies * groups * inputs * kTaps * kGroup);
  at::parallel_for(0, outputs, 1, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      for (int64_t i = 0; i < inputs; ++i) {
        const T* kernel =
            weight + 27 * (flip ? i * outputs + o : o * inputs + i);
        T taps[27];
        for (int k = 0; k < 27; ++k) taps[k] = kernel[flip ? 26 - k : k];
        for (int64_t tap = 0; tap < kTaps; ++tap) {
          T along_h[3][4], both[4][4];
          for (int d = 0; d < 3; ++d) {
            TransformWeights(taps + 9 * d + tap, 3, along_h[d], 1);
          }
          for (int h = 0; h < 4; ++h) {
            TransformWeights(&along_h[0][h], 4, &both[0][h], 4);
          }
          for (int64_t f = 0; f < kFrequencies; ++f) {
            result[(((f * groups + o / kGroup) * inputs + i) * kTaps + tap) *
                       kGroup +
                   o % kGroup] = both[f / 4][f % 4];
          }
        }
      }
    }
  });
  return result;
}

template <typename T>
void Convolve(const Channels<T>& in, const Channels<T>& activated, T in_slope,
              const std::vector<T>& weights, const T* bias, T slope,
              const VolumeSize& size, const OutChannels<T>& out) {
  const StripKernels<T>& kernels = Kernels<T>();
  const std::vector<T> zeros(size[2]);
  // Six vectors, what two groups of outputs or one take at once or twice.
  const Strips strips(size, TilesIn(6 * kernels.lanes + 1, size));
  const int64_t length =
      RoundUp(strips.most_tiles() * (size[2] + 1), kernels.lanes);
  at::parallel_for(
      0, strips.count(), /*grain_size=*/4, [&](int64_t begin, int64_t end) {
        ScratchLines<T> transformed(kFrequencies, in.size(),
                                    length + kernels.lanes);
        ScratchLines<T> product(kFrequencies, RoundUp(out.size(), kGroup),
                                length + kernels.lanes);
        std::vector<T> spare_row(size[2]);
        ForwardStrip<T> work;
        work.in = SourceOf(in, activated, in_slope, size, zeros.data());
        work.weights = weights.data();
        work.bias = bias;
        work.slope = slope;
        work.out = out.data();
        work.out_count = out.size();
        work.spare_row = spare_row.data();
        work.transformed = transformed.get();
        work.product = product.get();
        for (int64_t i = begin; i < end; ++i) kernels.forward(work, strips[i]);
      });
}

}  // namespace

template <typename T>
void ConvolveForward(const Channels<T>& in, const T* weight, const T* bias,
                     T slope, const VolumeSize& size,
                     const OutChannels<T>& out) {
  Convolve<T>(in, /*activated=*/{}, /*in_slope=*/1,
              TransformedWeights(weight, in.size(), out.size(), /*flip=*/false),
              bias, slope, size, out);
}

template <typename T>
void ConvolveBackwardToInput(const ActivatedGradient<T>& gradient,
                             const T* weight, const VolumeSize& size,
                             const OutChannels<T>& to_in) {
  Convolve<T>(gradient.gradient, gradient.activated, gradient.slope,
              TransformedWeights(weight, gradient.gradient.size(), to_in.size(),
                                 /*flip=*/true),
              /*bias=*/nullptr, /*slope=*/1, size, to_in);
}

template <typename T>
void ConvolveBackwardToWeight(const Channels<T>& in,
                              const ActivatedGradient<T>& gradient,
                              const VolumeSize& size, T* to_weight,
                              T* to_bias) {
  const StripKernels<T>& kernels = Kernels<T>();
  const std::vector<T> zeros(size[2]);
  const int64_t inputs = in.size(), outputs = gradient.gradient.size();
  const int64_t groups = (inputs + kGroup - 1) / kGroup;
  const int64_t blocks = (outputs + kernels.block - 1) / kernels.block;
  const int64_t products = kernels.block * kGroup;
  // Lines of kGroup inputs and a block of outputs stay in the first cache.
  const Strips strips(size, TilesIn(3200 / sizeof(T), size));
  const int64_t length =
      RoundUp(strips.most_tiles() * (size[2] + 1), kernels.lanes);

  // One sum per thread.
  const int64_t parts =
      std::min<int64_t>(at::get_num_threads(), strips.count());
  const int64_t sum_length =
      kFrequencies * kTaps * blocks * groups * products + outputs;
  std::vector<std::vector<T>> sums(parts);
  at::parallel_for(0, parts, /*grain_size=*/1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      sums[part].resize(sum_length);
      ScratchLines<T> transformed(4, groups * kGroup, length + kernels.lanes);
      ScratchLines<T> transformed_gradient(4, blocks * kernels.block,
                                           length + kernels.lanes);
      WeightStrip<T> work;
      work.in = SourceOf<T>(in, {}, 1, size, zeros.data());
      work.gradient = SourceOf(gradient.gradient, gradient.activated,
                               gradient.slope, size, zeros.data());
      work.transformed = transformed.get();
      work.transformed_gradient = transformed_gradient.get();
      work.sums = sums[part].data();
      work.to_bias = to_bias == nullptr
                         ? nullptr
                         : sums[part].data() + sum_length - outputs;
      const int64_t last = (part + 1) * strips.count() / parts;
      for (int64_t i = part * strips.count() / parts; i < last; ++i) {
        kernels.weight(work, strips[i]);
      }
    }
  });

  std::vector<T>& sum = sums.front();
  for (int64_t part = 1; part < parts; ++part) {
    for (int64_t i = 0; i < sum_length; ++i) sum[i] += sums[part][i];
  }
  for (int64_t o = 0; o < outputs; ++o) {
    for (int64_t i = 0; i < inputs; ++i) {
      T* kernel = to_weight + 27 * (o * inputs + i);
      for (int64_t tap = 0; tap < kTaps; ++tap) {
        T both[4][4], along_h[4][3], taps[3][3];
        for (int64_t f = 0; f < kFrequencies; ++f) {
          const int64_t block = o / kernels.block, group = i / kGroup;
          both[f / 4][f % 4] =
              sum[(((f * kTaps + tap) * blocks + block) * groups + group) *
                      products +
                  o % kernels.block * kGroup + i % kGroup];
        }
        for (int d = 0; d < 4; ++d) TransformBack(both[d], 1, along_h[d], 1);
        for (int h = 0; h < 3; ++h) {
          TransformBack(&along_h[0][h], 3, &taps[0][h], 3);
        }
        for (int k = 0; k < 9; ++k) kernel[3 * k + tap] += taps[k / 3][k % 3];
      }
    }
  }
  if (to_bias == nullptr) return;
  for (int64_t o = 0; o < outputs; ++o) {
    to_bias[o] += sum[sum_length - outputs + o];
  }
}

#define MIR_INSTANTIATE(T)                                                    \
  template void ConvolveForward<T>(const Channels<T>&, const T*, const T*, T, \
                                   const VolumeSize&, const OutChannels<T>&); \
  template void ConvolveBackwardToInput<T>(const ActivatedGradient<T>&,       \
                                           const T*, const VolumeSize&,       \
                                           const OutChannels<T>&);            \
  template void ConvolveBackwardToWeight<T>(const Channels<T>&,               \
                                            const ActivatedGradient<T>&,      \
                                            const VolumeSize&, T*, T*);
MIR_INSTANTIATE(float)
MIR_INSTANTIATE(double)
#undef MIR_INSTANTIATE

}  // namespace mir::models::kernels
