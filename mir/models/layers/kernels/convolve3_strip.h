#ifndef MIR_MODELS_LAYERS_KERNELS_CONVOLVE3_STRIP_H_
#define MIR_MODELS_LAYERS_KERNELS_CONVOLVE3_STRIP_H_

#include <cstdint>

namespace mir::models::kernels {

// A strip is `tiles` tiles of 2 x 2 rows beside each other along h, from plane
// `d` and row `h`. Transformed, its rows lie in one line of `tiles` times
// width + 1 values, with a zero between rows; one such line per channel and
// frequency. Frequencies are (d, h), 4 x 4.
struct Strip {
  int64_t d, h, tiles;
};

constexpr int64_t kFrequencies = 16;
constexpr int64_t kTaps = 3;   // Along w.
constexpr int64_t kGroup = 4;  // Channels are padded to a multiple.

// Lines in scratch memory.
template <typename T>
struct Lines {
  T* data;
  int64_t length;     // From a channel to the next.
  int64_t frequency;  // From a frequency to the next.
};

// Channels to transform, see ActivatedGradient; `activated` may be null.
template <typename T>
struct Source {
  const T* const* channels;
  const T* const* activated;
  T slope;
  int64_t count;
  int64_t depth, height, width;
  const T* zeros;  // A row.
};

// Transformed weights [frequency][group of outputs][input][tap][kGroup].
template <typename T>
struct ForwardStrip {
  Source<T> in;
  const T* weights;
  const T* bias;  // May be null.
  T slope;
  T* const* out;
  int64_t out_count;
  T* spare_row;  // For rows outside the volume.
  Lines<T> transformed, product;
};

// Sums of products [frequency][tap][block of outputs][group of inputs]
// [outputs of a block][kGroup].
template <typename T>
struct WeightStrip {
  Source<T> in, gradient;
  // Of four frequencies, zero at first.
  Lines<T> transformed, transformed_gradient;
  T* sums;
  T* to_bias;  // May be null.
};

// The kernels for one instruction set.
template <typename T>
struct StripKernels {
  int64_t lanes;
  int64_t block;  // Outputs per block of WeightStrip.
  void (*forward)(const ForwardStrip<T>&, const Strip&);
  void (*weight)(const WeightStrip<T>&, const Strip&);
};

}  // namespace mir::models::kernels

#endif  // MIR_MODELS_LAYERS_KERNELS_CONVOLVE3_STRIP_H_
