#ifndef MIR_GEOMETRY_GRID_IMAGE_H_
#define MIR_GEOMETRY_GRID_IMAGE_H_

#include <ATen/core/ATen_fwd.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace mir::geometry {

// A grid of lines to warp, so that a displacement can be seen: 1 on the lines,
// 0 between. MIR's mk_grid_img(step, first + 1, sizes, axis).
//
//   sizes    (D, H, W) or (H, W), each at least 1
//   step     from line to line, at least 1
//   axis     0 to 2, or 0 to 1: no lines are drawn across it, so that slices
//            along it show squares
//   first    where the first line lies, at least 0
//   returns  [1, 1, sizes...] float32, on the CPU
//
// Thread-safe. Throws c10::ValueError if an argument is not as above.
at::Tensor GridImage(at::IntArrayRef sizes, int64_t step, int64_t axis,
                     int64_t first = 0);

}  // namespace mir::geometry

#endif  // MIR_GEOMETRY_GRID_IMAGE_H_
