#ifndef MIR_GEOMETRY_FINITE_CHECK_H_
#define MIR_GEOMETRY_FINITE_CHECK_H_

#include <ATen/core/ATen_fwd.h>

namespace mir::geometry {

// Throws c10::ValueError if a floating tensor of any shape holds a NaN or an
// infinity, with the index of the first one in row-major order:
// "<function>: <what>[0, 2, 7] is nan; wanted finite values".
//
// One pass that takes no memory, until something is wrong. Waits for the device
// that the tensor is on. Thread-safe.
void CheckFinite(const char* function, const char* what,
                 const at::Tensor& tensor);

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_FINITE_CHECK_H_
