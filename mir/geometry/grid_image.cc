#include "mir/geometry/grid_image.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace mir::geometry {

at::Tensor GridImage(at::IntArrayRef sizes, int64_t step, int64_t axis,
                     int64_t first) {
  const auto dims = static_cast<int64_t>(sizes.size());
  TORCH_CHECK_VALUE((dims == 2 || dims == 3) &&
                        std::all_of(sizes.begin(), sizes.end(),
                                    [](int64_t size) { return size > 0; }),
                    "GridImage: wanted positive sizes (D, H, W) or (H, W), "
                    "came ",
                    sizes);
  TORCH_CHECK_VALUE(step >= 1 && first >= 0 && axis >= 0 && axis < dims,
                    "GridImage: wanted a step of at least 1, a first line of "
                    "at least 0 and one of ",
                    dims, " axes, came ", step, ", ", first, " and ", axis);
  const at::Tensor image = at::zeros(sizes);
  for (int64_t across = 0; across < dims; ++across) {
    if (across == axis) continue;
    image.slice(across, first, sizes[across], step).fill_(1);
  }
  return image.unsqueeze(0).unsqueeze(0);
}

}  // namespace mir::geometry
