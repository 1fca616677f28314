#ifndef MIR_GEOMETRY_KERNELS_MATCH_NEIGHBOURS_CPU_H_
#define MIR_GEOMETRY_KERNELS_MATCH_NEIGHBOURS_CPU_H_

#include <array>
#include <cstdint>

namespace mir::geometry::kernels {

// Sizes of a matching: queries [batch, channels, size...] and keys [batch,
// channels, padded size...], one voxel more on each side. Two dimensions are
// three whose first has one voxel and no neighbours (`planes` 1, else 3).
struct MatchingShape {
  int64_t batch = 0;
  int64_t channels = 0;
  std::array<int64_t, 3> size = {};
  int64_t planes = 3;
};

// The CPU's side of `MatchNeighbours`: contiguous arrays of float or double.
// Threaded; the same bits for any number of threads and on every x86-64.

// `offsets` [batch, planes == 3 ? 3 : 2, size...].
template <typename T>
void MatchForward(const T* queries, const T* keys, const MatchingShape& shape,
                  T* offsets);

// Given the gradient to `offsets`, writes that to the queries and adds that to
// the keys, which the caller has set to zero.
template <typename T>
void MatchBackward(const T* gradient, const T* queries, const T* keys,
                   const MatchingShape& shape, T* query_gradient,
                   T* key_gradient);

}  // namespace mir::geometry::kernels

#endif  // MIR_GEOMETRY_KERNELS_MATCH_NEIGHBOURS_CPU_H_
