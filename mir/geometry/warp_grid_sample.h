#ifndef MIR_GEOMETRY_WARP_GRID_SAMPLE_H_
#define MIR_GEOMETRY_WARP_GRID_SAMPLE_H_

#include <ATen/core/ATen_fwd.h>

#include "mir/geometry/warp_options.h"

namespace mir::geometry {

// `Warp` on devices without a kernel of our own: through LibTorch's sampler,
// whose normalised coordinates round (about 1e-5 voxel in float32), so that a
// zero field returns the image up to that. No argument checks, none for
// finite displacements. Image and displacement are both float32 or float64.
at::Tensor GridSampleWarp(const at::Tensor& image,
                          const at::Tensor& displacement,
                          const WarpOptions& options);

// `WarpLabels` likewise. Labels of any integer dtype; displacement float32 or
// float64.
at::Tensor GatherWarpLabels(const at::Tensor& labels,
                            const at::Tensor& displacement,
                            WarpConvention convention);

// `WarpLabelsLinear` likewise, label by label.
at::Tensor GridSampleWarpLabelsLinear(const at::Tensor& labels,
                                      const at::Tensor& displacement,
                                      WarpConvention convention);

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_WARP_GRID_SAMPLE_H_
