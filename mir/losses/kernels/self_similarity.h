#ifndef MIR_LOSSES_KERNELS_SELF_SIMILARITY_H_
#define MIR_LOSSES_KERNELS_SELF_SIMILARITY_H_

#include <array>
#include <cstdint>

namespace mir::losses::kernels {

// Pairs of the six neighbours of a voxel that touch each other, as offsets
// (d, h, w): what MIND-SSC compares.
constexpr int kSelfSimilarities = 12;
struct NeighbourPair {
  std::array<int, 3> first, second;
};
extern const std::array<NeighbourPair, kSelfSimilarities> kNeighbourPairs;

// The sum over all voxels and pairs of the squared difference of two images'
// MIND-SSC descriptors, and its derivative by b; see mind_ssc.h.
//
//   a, b      [volumes, d, h, w]; T is float or double
//   radius    of the patches that are compared
//   dilation  how far the neighbours lie
//   grad_b    null, or where to write the derivative, in which the bounds of
//             the variance are held fixed
//
// Works through slabs: each thread holds 12 (2 * radius + 1) slices and up to
// 80 of the derivative. The same bits for every number of threads.
template <typename T>
double CompareSelfSimilarities(const T* a, const T* b, int64_t volumes,
                               const std::array<int64_t, 3>& size,
                               int64_t radius, int64_t dilation, T* grad_b);

}  // namespace mir::losses::kernels

#endif  // MIR_LOSSES_KERNELS_SELF_SIMILARITY_H_
