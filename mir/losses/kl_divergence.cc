#include "mir/losses/kl_divergence.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <array>

#include "mir/losses/arguments.h"
#include "mir/precision/fp32_region.h"

namespace mir::losses {

namespace {

// With the logarithms of variances: of each element.
at::Tensor Elements(const char* loss, std::array<at::Tensor, 4> fields,
                    double log_factor) {
  at::ScalarType compute = at::kFloat;
  const char* const names[] = {"mean_p", "log_p", "mean_q", "log_q"};
  for (int i = 0; i < 4; ++i) {
    TORCH_CHECK_VALUE(fields[i].defined() && fields[i].numel() > 0 &&
                          fields[i].dim() >= 2 &&
                          fields[i].sizes() == fields[0].sizes(),
                      loss, ": wanted four fields [N, C, ...] of one shape, ",
                      "and not empty; got ", names[i], " that is not");
    TORCH_CHECK_TYPE(fields[i].is_floating_point(), loss,
                     ": wanted floating-point fields, got ", names[i], " ",
                     fields[i].scalar_type());
    CheckFiniteIf(false, loss, names[i], fields[i]);
    if (fields[i].scalar_type() == at::kDouble) compute = at::kDouble;
  }
  for (at::Tensor& field : fields) field = field.to(compute);
  const at::Tensor difference = log_factor * (fields[1] - fields[3]);
  const at::Tensor square =
      (fields[0] - fields[2]).square() * (-log_factor * fields[3]).exp();
  // expm1(x) - x is at least 0, though its terms cancel.
  return 0.5 * (difference.expm1() - difference + square);
}

}  // namespace

at::Tensor KlDivergence(const at::Tensor& mean_p, const at::Tensor& log_p,
                        const at::Tensor& mean_q, const at::Tensor& log_q) {
  const precision::Fp32Region region;
  return Elements("KlDivergence", {mean_p, log_p, mean_q, log_q}, 2).mean();
}

at::Tensor MultivariateKlDivergence(const at::Tensor& mean_p,
                                    const at::Tensor& log_p,
                                    const at::Tensor& mean_q,
                                    const at::Tensor& log_q) {
  const precision::Fp32Region region;
  return Elements("MultivariateKlDivergence", {mean_p, log_p, mean_q, log_q}, 1)
      .sum(1)
      .mean();
}

}  // namespace mir::losses
