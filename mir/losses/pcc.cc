#include "mir/losses/pcc.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include "mir/losses/arguments.h"
#include "mir/precision/fp32_region.h"

namespace mir::losses {

at::Tensor Pcc::operator()(const at::Tensor& fixed,
                           const at::Tensor& moving) const {
  CheckImagePair("Pcc", fixed, moving);
  CheckFiniteIf(options_.check_finite, "Pcc", "fixed", fixed);
  CheckFiniteIf(options_.check_finite, "Pcc", "moving", moving);
  const precision::Fp32Region region;
  at::Tensor images[] = {fixed.to(at::kDouble).flatten(1),
                         moving.to(at::kDouble).flatten(1)};
  at::Tensor variances[2];
  at::Tensor varies;
  for (int which = 0; which < 2; ++which) {
    const at::Tensor mean = images[which].mean(1, /*keepdim=*/true);
    images[which] = images[which] - mean;
    variances[which] = images[which].square().mean(1);
    // Less is the rounding of float32.
    const at::Tensor varies_here =
        variances[which].detach() > 1e-12 * mean.detach().squeeze(1).square();
    varies = varies.defined() ? varies.logical_and(varies_here) : varies_here;
  }
  const at::Tensor covariance = (images[0] * images[1]).mean(1);
  const at::Tensor ones = at::ones_like(covariance);
  // Square roots first: the product of variances may leave float64's range.
  const at::Tensor deviations = at::where(varies, variances[0], ones).sqrt() *
                                at::where(varies, variances[1], ones).sqrt();
  const at::Tensor correlation = covariance / deviations * varies;
  return (1 - correlation).mean().to(CommonComputeType(fixed, moving));
}

}  // namespace mir::losses
