#include "mir/geometry/identity_grid.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/stack.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace mir::geometry {

at::Tensor IdentityGrid(at::IntArrayRef sizes,
                        const at::TensorOptions& options) {
  TORCH_CHECK_VALUE((sizes.size() == 2 || sizes.size() == 3) &&
                        std::all_of(sizes.begin(), sizes.end(),
                                    [](int64_t size) { return size >= 0; }),
                    "IdentityGrid: wanted sizes (D, H, W) or (H, W), came ",
                    sizes);
  const auto dtype = c10::typeMetaToScalarType(options.dtype());
  TORCH_CHECK_VALUE(at::isFloatingType(dtype),
                    "IdentityGrid: wanted a floating dtype, came ", dtype);
  std::vector<at::Tensor> channels;
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    std::vector<int64_t> along(sizes.size(), 1);
    along[axis] = sizes[axis];
    channels.push_back(
        at::arange(sizes[axis], options).view(along).expand(sizes));
  }
  return at::stack(channels);
}

}  // namespace mir::geometry
