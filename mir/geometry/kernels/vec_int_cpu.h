#ifndef MIR_GEOMETRY_KERNELS_VEC_INT_CPU_H_
#define MIR_GEOMETRY_KERNELS_VEC_INT_CPU_H_

#include <ATen/core/Tensor.h>

#include "mir/geometry/warp_options.h"

namespace mir::geometry::kernels {

// What the backward pass of an integration takes from the forward one.
struct VecIntSteps {
  // int32 [steps, rows, 2]: the smallest and largest voxel that each row
  // reads, in each step.
  at::Tensor reach;
  // The fields after the steps but the last, [steps - 1, voxels, 4]; or
  // undefined, and the backward pass computes them again, each from the
  // velocity.
  at::Tensor fields;
};

// The CPU's side of `VecInt`, with one step or more: no autograd, no argument
// checks. `velocity` is contiguous, float32 or float64. Works in two fields of
// four numbers per voxel. Threaded, with the same bits for any number of
// threads.
//
// `kept`, if not null, is set for VecIntBackward, with the fields if
// `keep_fields`.
//
// Throws c10::ValueError with the index of the first velocity that is not
// finite.
at::Tensor VecIntForward(const at::Tensor& velocity, int steps,
                         WarpConvention convention, bool keep_fields,
                         VecIntSteps* kept);

// The gradient to the velocity, given that to the displacement, of any strides.
// Works in three fields, or four if it computes the others again.
at::Tensor VecIntBackward(const at::Tensor& gradient,
                          const at::Tensor& velocity, int steps,
                          WarpConvention convention, const VecIntSteps& kept);

}  // namespace mir::geometry::kernels

#endif  // MIR_GEOMETRY_KERNELS_VEC_INT_CPU_H_
