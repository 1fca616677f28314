#ifndef MIR_GEOMETRY_JACOBIAN_H_
#define MIR_GEOMETRY_JACOBIAN_H_

#include <ATen/core/ATen_fwd.h>

namespace mir::geometry {

// The Jacobian determinant of x + displacement(x) at every voxel, by which the
// mapping changes volume there: 1 where it keeps it, at most 0 where the
// mapping folds. A zero displacement gives exactly 1.
//
//   displacement  [N, 3, D, H, W] or [N, 2, H, W]  float16, bfloat16, float32
//                                                  or float64; in voxels;
//                                                  channel k along spatial
//                                                  axis k
//   returns       [N, D, H, W] or [N, H, W]        float64 for float64, else
//                                                  float32
//
// Derivatives are central differences, (u(x + 1) - u(x - 1)) / 2, and
// differences of neighbours on the volume's faces, as numpy.gradient takes
// them and with it VoxelMorph and TransMorph; 0 along an axis of one voxel.
// Inside the faces the values are those of Learn2Reg's evaluation (which cuts
// off 2 voxels) and of MIR's '0x0y0z' stencil (which cuts off 1).
//
// Computes in the type that it returns, under autocast too. Differentiable any
// number of times. On the CPU, values and gradients have the same bits for any
// number of threads, and neither holds a volume beside its result. Thread-safe.
//
// Throws c10::ValueError if `displacement` is not as above. A displacement
// that is not finite makes the determinants around it NaN or infinite.
at::Tensor JacobianDeterminant(const at::Tensor& displacement);

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_JACOBIAN_H_
