#include "mir/geometry/kernels/match_neighbours_cpu.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "mir/base/target_clones.h"

namespace mir::geometry::kernels {

namespace matching_tiles {

constexpr int64_t kTile = 64;        // Voxels of a row at a time, in L1.
constexpr int64_t kNeighbours = 27;  // At most.

// Up to kTile voxels of one row, and their neighbours among the keys. Channels
// lie `query_channel` and `key_channel` apart.
template <typename T>
struct Tile {
  const T* query;
  const T* key;  // The first neighbour of the first voxel.
  int64_t query_channel, key_channel, key_plane, key_row;
  int64_t channels, planes, width;
  T temperature;

  const T* KeyRow(int64_t channel, int64_t row) const {
    return key + channel * key_channel + (row / 3) * key_plane +
           (row % 3) * key_row;
  }
};

template <typename T>
using Weights = T[kNeighbours][kTile];

// e^x for x <= 0, to 2 units in the last place.
[[gnu::always_inline]] inline float Exp(float x) {
  // Below, the result is a subnormal number or zero; a mere comparison, so that
  // loops stay loops.
  x = x < -87.0f ? -87.0f : x;
  // Rounds to the nearest whole number of halvings.
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23
  const float halvings = (x * 1.44269504088896341f + kRound) - kRound;
  const float r = (x - halvings * 0.693359375f) + halvings * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = (p * (r * r) + r) + 1.0f;
  int32_t bits;
  std::memcpy(&bits, &p, sizeof(bits));
  bits += static_cast<int32_t>(halvings) * (1 << 23);
  std::memcpy(&p, &bits, sizeof(p));
  return p;
}
[[gnu::always_inline]] inline double Exp(double x) { return std::exp(x); }

// The softmax over neighbours of query times key.
template <typename T>
[[gnu::always_inline]] inline void SoftmaxOf(const Tile<T>& tile,
                                             Weights<T>& weights) {
  const int64_t neighbours = 9 * tile.planes;
  const int64_t width = tile.width;
  for (int64_t row = 0; row < 3 * tile.planes; ++row) {
    T* __restrict before = weights[3 * row];
    T* __restrict at = weights[3 * row + 1];
    T* __restrict after = weights[3 * row + 2];
    for (int64_t w = 0; w < width; ++w) before[w] = at[w] = after[w] = 0;
    for (int64_t channel = 0; channel < tile.channels; ++channel) {
      const T* __restrict query = tile.query + channel * tile.query_channel;
      const T* __restrict key = tile.KeyRow(channel, row);
      for (int64_t w = 0; w < width; ++w) {
        before[w] += query[w] * key[w];
        at[w] += query[w] * key[w + 1];
        after[w] += query[w] * key[w + 2];
      }
    }
  }
  T largest[kTile], sum[kTile];
  for (int64_t k = 0; k < neighbours; ++k) {
    for (int64_t w = 0; w < width; ++w) weights[k][w] /= tile.temperature;
  }
  for (int64_t w = 0; w < width; ++w) {
    largest[w] = weights[0][w];
    sum[w] = 0;
  }
  for (int64_t k = 1; k < neighbours; ++k) {
    for (int64_t w = 0; w < width; ++w) {
      largest[w] = weights[k][w] > largest[w] ? weights[k][w] : largest[w];
    }
  }
  for (int64_t k = 0; k < neighbours; ++k) {
    for (int64_t w = 0; w < width; ++w) {
      weights[k][w] = Exp(weights[k][w] - largest[w]);
      sum[w] += weights[k][w];
    }
  }
  for (int64_t k = 0; k < neighbours; ++k) {
    for (int64_t w = 0; w < width; ++w) weights[k][w] /= sum[w];
  }
}

// Where neighbour k lies along an axis: -1, 0 or 1. The last axis is 2.
inline int Offset(int64_t k, int axis) {
  for (int i = axis; i < 2; ++i) k /= 3;
  return static_cast<int>(k % 3) - 1;
}

template <typename T>
[[gnu::always_inline]] inline void ForwardOf(const Tile<T>& tile, T* offsets,
                                             int64_t channel_stride) {
  Weights<T> weights;
  SoftmaxOf(tile, weights);
  const int first = tile.planes == 3 ? 0 : 1;
  for (int axis = first; axis < 3; ++axis) {
    T* __restrict out = offsets + (axis - first) * channel_stride;
    for (int64_t w = 0; w < tile.width; ++w) out[w] = 0;
    for (int64_t k = 0; k < 9 * tile.planes; ++k) {
      const T offset = Offset(k, axis);
      if (offset == 0) continue;
      for (int64_t w = 0; w < tile.width; ++w) {
        out[w] += offset * weights[k][w];
      }
    }
  }
}

// `gradient` at the tile, its channels `channel_stride` apart; the others as
// the tile's query and key.
template <typename T>
[[gnu::always_inline]] inline void BackwardOf(const Tile<T>& tile,
                                              const T* gradient,
                                              int64_t channel_stride,
                                              T* query_gradient,
                                              T* key_gradient) {
  const int64_t neighbours = 9 * tile.planes;
  const int64_t width = tile.width;
  const int first = tile.planes == 3 ? 0 : 1;
  Weights<T> slopes;
  SoftmaxOf(tile, slopes);
  // d logit_k = weight_k (g_k - mean g), where g_k is the gradient along the
  // offset of neighbour k.
  T along[kNeighbours][kTile], mean[kTile];
  for (int64_t w = 0; w < width; ++w) mean[w] = 0;
  for (int64_t k = 0; k < neighbours; ++k) {
    for (int64_t w = 0; w < width; ++w) along[k][w] = 0;
    for (int axis = first; axis < 3; ++axis) {
      const T offset = Offset(k, axis);
      const T* __restrict g = gradient + (axis - first) * channel_stride;
      for (int64_t w = 0; w < width; ++w) along[k][w] += offset * g[w];
    }
    for (int64_t w = 0; w < width; ++w) mean[w] += slopes[k][w] * along[k][w];
  }
  for (int64_t k = 0; k < neighbours; ++k) {
    for (int64_t w = 0; w < width; ++w) {
      slopes[k][w] *= (along[k][w] - mean[w]) / tile.temperature;
    }
  }
  for (int64_t channel = 0; channel < tile.channels; ++channel) {
    const T* __restrict query = tile.query + channel * tile.query_channel;
    T* __restrict out = query_gradient + channel * tile.query_channel;
    T sum[kTile];
    for (int64_t w = 0; w < width; ++w) sum[w] = 0;
    for (int64_t row = 0; row < 3 * tile.planes; ++row) {
      const T* __restrict key = tile.KeyRow(channel, row);
      T* __restrict to_key =
          key_gradient + (tile.KeyRow(channel, row) - tile.key);
      for (int64_t shift = 0; shift < 3; ++shift) {
        const T* __restrict slope = slopes[3 * row + shift];
        for (int64_t w = 0; w < width; ++w) {
          sum[w] += slope[w] * key[w + shift];
          to_key[w + shift] += slope[w] * query[w];
        }
      }
    }
    for (int64_t w = 0; w < width; ++w) out[w] = sum[w];
  }
}

MIR_TARGET_CLONES void Forward(const Tile<float>& tile, float* offsets,
                               int64_t channel_stride) {
  ForwardOf(tile, offsets, channel_stride);
}
MIR_TARGET_CLONES void Forward(const Tile<double>& tile, double* offsets,
                               int64_t channel_stride) {
  ForwardOf(tile, offsets, channel_stride);
}
MIR_TARGET_CLONES void Backward(const Tile<float>& tile, const float* gradient,
                                int64_t channel_stride, float* query_gradient,
                                float* key_gradient) {
  BackwardOf(tile, gradient, channel_stride, query_gradient, key_gradient);
}
MIR_TARGET_CLONES void Backward(const Tile<double>& tile,
                                const double* gradient, int64_t channel_stride,
                                double* query_gradient, double* key_gradient) {
  BackwardOf(tile, gradient, channel_stride, query_gradient, key_gradient);
}

}  // namespace matching_tiles

namespace {

using matching_tiles::kTile;
using matching_tiles::Tile;

// Planes of a slab in the backward pass. One slab adds to the keys' gradients
// of its planes and of the two behind them, so slabs of one parity never meet.
constexpr int64_t kSlab = 4;

template <typename T>
class Matching {
 public:
  Matching(const T* queries, const T* keys, const MatchingShape& shape)
      : queries_(queries), keys_(keys), shape_(shape) {
    for (int axis = 0; axis < 3; ++axis) {
      padded_[axis] =
          shape.size[axis] + (axis > 0 || shape.planes == 3 ? 2 : 0);
    }
  }

  int64_t axes() const { return shape_.planes == 3 ? 3 : 2; }
  int64_t voxels() const {
    return shape_.size[0] * shape_.size[1] * shape_.size[2];
  }
  int64_t padded_voxels() const { return padded_[0] * padded_[1] * padded_[2]; }
  int64_t rows() const {
    return shape_.batch * shape_.size[0] * shape_.size[1];
  }

  // Calls `use(tile, query_offset, key_offset, offset)` for the tiles of row
  // `row`: where they lie in queries, in keys and in offsets.
  template <typename Use>
  void ForTiles(int64_t row, const Use& use) const {
    const auto [depth, height, width] = shape_.size;
    const int64_t h = row % height, d = row / height % depth;
    const int64_t batch = row / (height * depth);
    const int64_t inside = (d * height + h) * width;
    const int64_t query = batch * shape_.channels * voxels() + inside;
    const int64_t key = batch * shape_.channels * padded_voxels() +
                        (d * padded_[1] + h) * padded_[2];
    const int64_t offset = batch * axes() * voxels() + inside;
    for (int64_t w = 0; w < width; w += kTile) {
      Tile<T> tile;
      tile.query = queries_ + query + w;
      tile.key = keys_ + key + w;
      tile.query_channel = voxels();
      tile.key_channel = padded_voxels();
      tile.key_plane = padded_[1] * padded_[2];
      tile.key_row = padded_[2];
      tile.channels = shape_.channels;
      tile.planes = shape_.planes;
      tile.width = std::min(kTile, width - w);
      tile.temperature =
          static_cast<T>(std::sqrt(static_cast<double>(shape_.channels)));
      use(tile, query + w, key + w, offset + w);
    }
  }

 private:
  const T* queries_;
  const T* keys_;
  MatchingShape shape_;
  std::array<int64_t, 3> padded_;
};

}  // namespace

template <typename T>
void MatchForward(const T* queries, const T* keys, const MatchingShape& shape,
                  T* offsets) {
  const Matching<T> matching(queries, keys, shape);
  at::parallel_for(
      0, matching.rows(), /*grain_size=*/16, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          matching.ForTiles(row, [&](const Tile<T>& tile, int64_t, int64_t,
                                     int64_t offset) {
            matching_tiles::Forward(tile, offsets + offset, matching.voxels());
          });
        }
      });
}

template <typename T>
void MatchBackward(const T* gradient, const T* queries, const T* keys,
                   const MatchingShape& shape, T* query_gradient,
                   T* key_gradient) {
  const Matching<T> matching(queries, keys, shape);
  // Along d, or along h where that is the first axis.
  const int64_t planes = shape.planes == 3 ? shape.size[0] : shape.size[1];
  const int64_t rows_per_plane = shape.planes == 3 ? shape.size[1] : 1;
  const int64_t slabs = (planes + kSlab - 1) / kSlab;
  for (const int64_t parity : {0, 1}) {
    const int64_t half = (slabs + 1 - parity) / 2;
    at::parallel_for(
        0, shape.batch * half, /*grain_size=*/1,
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t first = (2 * (i % half) + parity) * kSlab;
            const int64_t last = std::min(first + kSlab, planes);
            const int64_t volume = i / half * planes * rows_per_plane;
            for (int64_t row = volume + first * rows_per_plane;
                 row < volume + last * rows_per_plane; ++row) {
              matching.ForTiles(row, [&](const Tile<T>& tile, int64_t query,
                                         int64_t key, int64_t offset) {
                matching_tiles::Backward(
                    tile, gradient + offset, matching.voxels(),
                    query_gradient + query, key_gradient + key);
              });
            }
          }
        });
  }
}

template void MatchForward<float>(const float*, const float*,
                                  const MatchingShape&, float*);
template void MatchForward<double>(const double*, const double*,
                                   const MatchingShape&, double*);
template void MatchBackward<float>(const float*, const float*, const float*,
                                   const MatchingShape&, float*, float*);
template void MatchBackward<double>(const double*, const double*, const double*,
                                    const MatchingShape&, double*, double*);

}  // namespace mir::geometry::kernels
