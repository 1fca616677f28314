#ifndef MIR_LOSSES_KERNELS_GRADIENT_PENALTY_H_
#define MIR_LOSSES_KERNELS_GRADIENT_PENALTY_H_

#include <array>
#include <cstdint>
#include <vector>

namespace mir::losses::kernels {

// Fields of `size` (d, h, w) one after the other, and what each difference
// between neighbours counts: weights[field % weights.size()][axis] times its
// absolute value, or its square where `squared`.
struct PenaltyShape {
  int64_t fields = 0;
  std::array<int64_t, 3> size = {};
  std::vector<std::array<double, 3>> weights;
  bool squared = true;
};

// The weighted sum over all pairs of neighbours; summed in float64, in an
// order that depends on the shape alone. Writes its derivative by each element
// to `gradient` if that is not null; where two neighbours are equal that of the
// absolute value is 0.
template <typename T>
double NeighbourPenalty(const T* fields, const PenaltyShape& shape,
                        T* gradient);

}  // namespace mir::losses::kernels

#endif  // MIR_LOSSES_KERNELS_GRADIENT_PENALTY_H_
