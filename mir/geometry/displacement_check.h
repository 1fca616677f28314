#ifndef MIR_GEOMETRY_DISPLACEMENT_CHECK_H_
#define MIR_GEOMETRY_DISPLACEMENT_CHECK_H_

#include <ATen/core/ATen_fwd.h>

namespace mir::geometry {

// Throws c10::ValueError unless `field` is a float16, bfloat16, float32 or
// float64 tensor [N, 3, D, H, W] or [N, 2, H, W] with voxels, fewer than 2^31
// of them per channel. The message begins with `function`, and calls the field
// `what`.
void CheckDisplacement(const char* function, const char* what,
                       const at::Tensor& field);

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_DISPLACEMENT_CHECK_H_
