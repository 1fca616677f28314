#include "mir/models/layers/image_pair.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

namespace mir::models {

void CheckImagePair(const ImagePairRule& rule, const at::Tensor& moving,
                    const at::Tensor& fixed) {
  const int64_t ndims = rule.multiple.size();
  TORCH_CHECK_VALUE(
      moving.dim() == 2 + ndims && moving.sizes() == fixed.sizes() &&
          moving.size(1) == rule.channels,
      rule.model, " wants a moving and a fixed image of equal shape [N, ",
      rule.channels, ndims == 3 ? ", D, H, W" : ", H, W", "], not ",
      moving.sizes(), " and ", fixed.sizes());
  for (int64_t axis = 0; axis < ndims; ++axis) {
    const int64_t size = moving.size(2 + axis);
    TORCH_CHECK_VALUE(size > 0 && size % rule.multiple[axis] == 0, rule.model,
                      " wants spatial sizes that are multiples of ",
                      rule.multiple[axis], ", not ", moving.sizes().slice(2));
  }
  TORCH_CHECK_VALUE(
      moving.is_floating_point() && moving.scalar_type() == fixed.scalar_type(),
      rule.model, " wants floating images of one dtype, not ",
      moving.scalar_type(), " and ", fixed.scalar_type());
  TORCH_CHECK_VALUE(
      moving.scalar_type() == rule.weights ||
          at::autocast::is_autocast_enabled(moving.device().type()),
      rule.model, " has ", rule.weights,
      " weights and wants images of that dtype, not ", moving.scalar_type(),
      " (or autocast)");
}

}  // namespace mir::models
