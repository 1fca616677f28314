#ifndef MIR_GEOMETRY_KERNELS_JACOBIAN_CPU_H_
#define MIR_GEOMETRY_KERNELS_JACOBIAN_CPU_H_

#include <ATen/core/ATen_fwd.h>

namespace mir::geometry::kernels {

// `JacobianDeterminant` on the CPU, without autograd or argument checks, in
// one pass. `displacement` is contiguous, float32 or float64. Threaded, with
// the same bits for any number of threads.
at::Tensor JacobianForward(const at::Tensor& displacement);

// The gradient to the displacement, given that to the determinants, of any
// strides. Likewise in one pass, which differentiates again: it holds a few
// rows.
at::Tensor JacobianBackward(const at::Tensor& gradient,
                            const at::Tensor& displacement);

}  // namespace mir::geometry::kernels

#endif  // MIR_GEOMETRY_KERNELS_JACOBIAN_CPU_H_
