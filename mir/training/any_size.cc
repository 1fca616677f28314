#include "mir/training/any_size.h"

#include <ATen/ops/constant_pad_nd.h>
#include <c10/util/Exception.h>

#include <vector>

#include "mir/precision/autocast.h"

namespace mir::training {
namespace {

// The first `sizes` voxels of each spatial axis.
at::Tensor Cropped(at::Tensor tensor, at::IntArrayRef sizes) {
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    tensor = tensor.narrow(2 + static_cast<int64_t>(axis), 0, sizes[axis]);
  }
  return tensor;
}

}  // namespace

models::Registration RegisterAnySize(models::RegistrationModel& model,
                                     const at::Tensor& moving,
                                     const at::Tensor& fixed) {
  const std::vector<int64_t> multiple = model.SizeMultiple();
  TORCH_CHECK_VALUE(moving.dim() == static_cast<int64_t>(multiple.size()) + 2 &&
                        moving.sizes() == fixed.sizes(),
                    "wanted two images of equal shape with ", multiple.size(),
                    " spatial axes, got ", moving.sizes(), " and ",
                    fixed.sizes());
  const std::vector<int64_t> sizes = moving.sizes().slice(2).vec();
  std::vector<int64_t> padded = sizes;
  std::vector<int64_t> padding;  // Last axis first, before and after.
  for (size_t axis = sizes.size(); axis-- > 0;) {
    padded[axis] =
        (sizes[axis] + multiple[axis] - 1) / multiple[axis] * multiple[axis];
    padding.push_back(0);
    padding.push_back(padded[axis] - sizes[axis]);
  }
  if (padded == sizes) return model.Register(moving, fixed);

  models::Registration registration =
      model.Register(at::constant_pad_nd(moving, padding),
                     at::constant_pad_nd(fixed, padding));
  registration.displacement = Cropped(registration.displacement, sizes);
  if (registration.regularized.sizes().slice(2) == padded) {
    registration.regularized = Cropped(registration.regularized, sizes);
  }
  if (registration.weights.defined()) {
    registration.weights = Cropped(registration.weights, sizes);
  }
  return registration;
}

models::Registration RegisterInPrecision(models::RegistrationModel& model,
                                         const at::Tensor& moving,
                                         const at::Tensor& fixed,
                                         precision::Precision precision) {
  const precision::Autocast autocast(moving.device().type(), precision);
  models::Registration registration = RegisterAnySize(model, moving, fixed);
  registration.displacement = registration.displacement.to(at::kFloat);
  return registration;
}

}  // namespace mir::training
