#include "mir/geometry/spatial_transformer.h"

#include <ATen/core/Tensor.h>

#include "mir/geometry/warp.h"

namespace mir::geometry {

at::Tensor SpatialTransformer::operator()(
    const at::Tensor& image, const at::Tensor& displacement) const {
  return Warp(image, displacement, options_);
}

}  // namespace mir::geometry
