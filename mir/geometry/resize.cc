#include "mir/geometry/resize.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_trilinear3d.h>
#include <c10/util/Exception.h>

#include <vector>

#include "mir/geometry/displacement_check.h"
#include "mir/precision/fp32_region.h"

namespace mir::geometry {
namespace {

void CheckSizes(const char* function, const at::Tensor& image,
                at::IntArrayRef sizes) {
  bool positive = true;
  for (const int64_t size : sizes) positive &= size >= 1;
  TORCH_CHECK_VALUE(
      static_cast<int64_t>(sizes.size()) == image.dim() - 2 && positive,
      function, ": wanted ", image.dim() - 2, " new sizes of at least 1 for ",
      image.sizes(), ", came ", sizes);
}

at::Tensor ResizeLinear(const at::Tensor& image, at::IntArrayRef sizes) {
  const precision::Fp32Region fp32;
  if (image.size(0) == 0 || image.size(1) == 0) {  // LibTorch refuses these.
    std::vector<int64_t> result = {image.size(0), image.size(1)};
    result.insert(result.end(), sizes.begin(), sizes.end());
    return image.new_empty(result);
  }
  const at::Tensor source = precision::ToComputeType(image);
  return image.dim() == 5
             ? at::upsample_trilinear3d(source, sizes, /*align_corners=*/false)
             : at::upsample_bilinear2d(source, sizes, /*align_corners=*/false);
}

at::Tensor ResizeNearest(at::Tensor image, at::IntArrayRef sizes) {
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    const int64_t dim = 2 + static_cast<int64_t>(axis);
    const int64_t size = image.size(dim);
    std::vector<int64_t> source(sizes[axis]);
    for (int64_t v = 0; v < sizes[axis]; ++v) {
      source[v] = (2 * v + 1) * size / (2 * sizes[axis]);
    }
    image = at::index_select(image, dim,
                             at::tensor(source, at::kLong).to(image.device()));
  }
  return image;
}

}  // namespace

at::Tensor ResizeImage(const at::Tensor& image, at::IntArrayRef sizes,
                       Interpolation interpolation) {
  TORCH_CHECK_VALUE(image.defined(), "ResizeImage: image is undefined");
  TORCH_CHECK_VALUE(image.dim() == 4 || image.dim() == 5,
                    "ResizeImage: wanted image [N, C, D, H, W] or [N, C, H, "
                    "W], came ",
                    image.sizes());
  TORCH_CHECK_VALUE(
      image.size(2) > 0 && image.size(-2) > 0 && image.size(-1) > 0,
      "ResizeImage: wanted image with voxels, came ", image.sizes());
  CheckSizes("ResizeImage", image, sizes);
  if (interpolation == Interpolation::kNearest) {
    return ResizeNearest(image, sizes);
  }
  TORCH_CHECK_VALUE(
      at::isFloatingType(image.scalar_type()),
      "ResizeImage: wanted an image of floating dtype for kLinear, came ",
      image.scalar_type(), "; resize labels with kNearest");
  return ResizeLinear(image, sizes).to(image.scalar_type());
}

at::Tensor ResizeDisplacement(const at::Tensor& displacement,
                              at::IntArrayRef sizes) {
  CheckDisplacement("ResizeDisplacement", "displacement", displacement);
  CheckSizes("ResizeDisplacement", displacement, sizes);
  std::vector<double> scale;
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    scale.push_back(static_cast<double>(sizes[axis]) /
                    static_cast<double>(displacement.size(2 + axis)));
  }
  const at::Tensor field = precision::ToComputeType(displacement);
  std::vector<int64_t> per_channel(field.dim(), 1);
  per_channel[1] = static_cast<int64_t>(scale.size());
  return ResizeLinear(field, sizes) * at::tensor(scale, field.scalar_type())
                                          .to(field.device())
                                          .view(per_channel);
}

}  // namespace mir::geometry
