#include <ATen/core/Tensor.h>

#include "mir/geometry/spatial_transformer.h"
#include "mir/geometry/vec_int.h"
#include "tests/goldens/handlers.h"

namespace mir::goldens {
namespace {

using ::mir::geometry::Interpolation;
using ::mir::geometry::Outside;
using ::mir::geometry::WarpConvention;
using ::mir::geometry::WarpOptions;

Handler Transform(Interpolation interpolation, Outside outside) {
  return [=](GoldenRun& run) {
    const geometry::SpatialTransformer transform(
        WarpOptions{WarpConvention::kMirCompatible, interpolation, outside});
    run.Out("warped", transform(run.In("src"), run.In("flow")));
  };
}

Handler Integrate(int steps) {
  return [=](GoldenRun& run) {
    run.Out("flow", geometry::VecInt(run.In("vec"), steps,
                                     WarpConvention::kMirCompatible));
  };
}

}  // namespace

HandlerTable GeometryHandlers() {
  const Handler linear = Transform(Interpolation::kLinear, Outside::kZero);
  const Handler nearest = Transform(Interpolation::kNearest, Outside::kZero);
  return {
      {"geo_stn_2d", linear},
      {"geo_stn_bilinear", linear},
      {"geo_stn_bilinear_b2c2", linear},
      {"geo_stn_border",
       Transform(Interpolation::kLinear, Outside::kNearestEdge)},
      {"geo_stn_labels_nearest", nearest},
      {"geo_stn_nearest", nearest},
      {"geo_stn_reflection",
       Transform(Interpolation::kLinear, Outside::kReflect)},
      {"geo_stn_utils", linear},
      {"geo_vecint_0", Integrate(0)},
      {"geo_vecint_5", Integrate(5)},
      {"geo_vecint_7", Integrate(7)},
  };
}

}  // namespace mir::goldens
