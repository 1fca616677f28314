#ifndef MIR_GEOMETRY_SPATIAL_TRANSFORMER_H_
#define MIR_GEOMETRY_SPATIAL_TRANSFORMER_H_

#include <ATen/core/ATen_fwd.h>

#include "mir/geometry/warp_options.h"

namespace mir::geometry {

// `Warp` with its options fixed, for models that hold MIR's class of this
// name. Unlike it, holds no identity grid, and serves images of any size, 2-D
// and 3-D. The default is what MIR's does with mode='bilinear'.
//
// Copies are cheap. Calls may overlap.
class SpatialTransformer {
 public:
  explicit SpatialTransformer(
      const WarpOptions& options = {WarpConvention::kMirCompatible})
      : options_(options) {}

  // As `Warp(image, displacement, options())`, in its errors too.
  at::Tensor operator()(const at::Tensor& image,
                        const at::Tensor& displacement) const;

  const WarpOptions& options() const { return options_; }

 private:
  WarpOptions options_;
};

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_SPATIAL_TRANSFORMER_H_
