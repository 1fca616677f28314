#include "mir/losses/mse.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/mse_loss.h>

#include <cmath>

#include "mir/losses/arguments.h"
#include "mir/precision/fp32_region.h"

namespace mir::losses {

at::Tensor Mse::operator()(const at::Tensor& fixed,
                           const at::Tensor& moving) const {
  CheckImagePair("Mse", fixed, moving);
  const precision::Fp32Region region;
  const at::ScalarType compute = CommonComputeType(fixed, moving);
  const at::Tensor loss = at::mse_loss(fixed.to(compute), moving.to(compute));
  // Any NaN or infinity shows in the mean; squares may overflow by themselves.
  if (loss.is_cpu() ? !std::isfinite(loss.item<double>())
                    : options_.check_finite) {
    CheckFinite("Mse", "fixed", fixed);
    CheckFinite("Mse", "moving", moving);
  }
  return loss;
}

at::Tensor Mse::operator()(const at::Tensor& fixed, const at::Tensor& moving,
                           const at::Tensor& weight) const {
  CheckImagePair("Mse", fixed, moving);
  CheckWeight("Mse", weight, fixed);
  const precision::Fp32Region region;
  const at::ScalarType compute = CommonComputeType(fixed, moving);
  const at::Tensor nothing = weight == 0;
  const at::Tensor f = fixed.to(compute).masked_fill(nothing, 0);
  const at::Tensor m = moving.to(compute).masked_fill(nothing, 0);
  CheckFiniteIf(options_.check_finite, "Mse", "fixed", f);
  CheckFiniteIf(options_.check_finite, "Mse", "moving", m);
  return WeightedMean((f - m).square(), weight);
}

}  // namespace mir::losses
