#include "mir/losses/weight_priors.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "mir/losses/arguments.h"
#include "mir/precision/fp32_region.h"

namespace mir::losses {

namespace {

at::Tensor Checked(const char* loss, const at::Tensor& weights,
                   double epsilon) {
  TORCH_CHECK_VALUE(weights.defined() && weights.numel() > 0, loss,
                    ": wanted weights, and not empty");
  TORCH_CHECK_TYPE(weights.is_floating_point(), loss,
                   ": wanted floating-point weights, got ",
                   weights.scalar_type());
  TORCH_CHECK_VALUE(epsilon > 0, loss, ": wanted a positive epsilon, got ",
                    epsilon);
  CheckFiniteIf(false, loss, "weights", weights);
  return precision::ToComputeType(weights);
}

}  // namespace

at::Tensor LogBeta(const at::Tensor& weights, double alpha, double epsilon) {
  const precision::Fp32Region region;
  return (1 - alpha) *
         Checked("LogBeta", weights, epsilon).clamp(epsilon, 1.0).log().mean();
}

at::Tensor LogGaussian(const at::Tensor& weights, double inverse_variance,
                       double largest, double epsilon) {
  const precision::Fp32Region region;
  return inverse_variance *
         (Checked("LogGaussian", weights, epsilon).clamp(epsilon, largest) - 1)
             .square()
             .mean();
}

}  // namespace mir::losses
