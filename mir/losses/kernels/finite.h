#ifndef MIR_LOSSES_KERNELS_FINITE_H_
#define MIR_LOSSES_KERNELS_FINITE_H_

#include <cstdint>

namespace mir::losses::kernels {

// Whether none of `count` values is NaN or infinite; at the memory's speed.
bool AllFinite(const float* values, int64_t count);
bool AllFinite(const double* values, int64_t count);

}  // namespace mir::losses::kernels

#endif  // MIR_LOSSES_KERNELS_FINITE_H_
