#include "mir/geometry/crop_or_pad.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/constant_pad_nd.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace mir::geometry {
namespace {

// Adds `before(missing)` voxels to the front of each axis, and the rest of the
// missing ones to its end; negative numbers cut off.
template <typename Before>
at::Tensor Fit(const char* function, const at::Tensor& volume,
               at::IntArrayRef sizes, double value, bool crop,
               const Before& before) {
  TORCH_CHECK_VALUE(volume.defined(), function, ": the volume is undefined");
  TORCH_CHECK_VALUE(
      sizes.size() <= volume.dim() &&
          std::all_of(sizes.begin(), sizes.end(),
                      [](int64_t size) { return size >= 0; }),
      function, ": wanted sizes of at least 0 for the last axes of a volume ",
      volume.sizes(), ", came ", sizes);
  // From the last axis on, as constant_pad_nd wants it.
  std::vector<int64_t> padding;
  for (int64_t i = 1; i <= sizes.size(); ++i) {
    int64_t missing = sizes[sizes.size() - i] - volume.size(-i);
    if (!crop) missing = std::max<int64_t>(missing, 0);
    padding.push_back(before(missing));
    padding.push_back(missing - before(missing));
  }
  return at::constant_pad_nd(volume, padding, value);
}

}  // namespace

at::Tensor CropOrPad(const at::Tensor& volume, at::IntArrayRef sizes,
                     double value) {
  return Fit("CropOrPad", volume, sizes, value, /*crop=*/true,
             [](int64_t missing) { return missing / 2; });
}

at::Tensor PadAtEnd(const at::Tensor& volume, at::IntArrayRef sizes,
                    double value) {
  return Fit("PadAtEnd", volume, sizes, value, /*crop=*/false,
             [](int64_t) { return int64_t{0}; });
}

}  // namespace mir::geometry
