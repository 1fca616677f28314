#ifndef MIR_GEOMETRY_CROP_OR_PAD_H_
#define MIR_GEOMETRY_CROP_OR_PAD_H_

#include <ATen/core/ATen_fwd.h>
#include <c10/util/ArrayRef.h>

namespace mir::geometry {

// Both take a tensor [..., D, H, W] of any dtype and device and act on as many
// of its last axes as `sizes` has, at most all. They are differentiable and
// thread-safe, and throw c10::ValueError if an argument is not as said.

// Cuts off or adds `value` at both ends of each axis, such that the middle
// stays the middle: where an odd number of voxels comes or goes, the end gets
// the one more. MIR's CenterCropPad3D and crop_or_pad.
at::Tensor CropOrPad(const at::Tensor& volume, at::IntArrayRef sizes,
                     double value = 0);

// Adds `value` at the end of each axis that is shorter than in `sizes`; longer
// axes stay. MIR's pad_image.
at::Tensor PadAtEnd(const at::Tensor& volume, at::IntArrayRef sizes,
                    double value = 0);

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_CROP_OR_PAD_H_
