#ifndef MIR_LOSSES_WEIGHT_PRIORS_H_
#define MIR_LOSSES_WEIGHT_PRIORS_H_

#include <ATen/core/ATen_fwd.h>

namespace mir::losses {

// Priors of the local smoothing weights that a network predicts for a spatially
// varying regularizer. Both take weights of any shape, floating and not empty,
// return a scalar in float32 (float64 for float64), are differentiable, and
// throw c10::ValueError or c10::TypeError for other tensors and, on the CPU,
// for weights that are not finite.

// The negative log-likelihood of Beta(alpha, 1), up to a constant:
// (1 - alpha) mean(log w) with w clamped to [epsilon, 1] (MIR's logBeta).
at::Tensor LogBeta(const at::Tensor& weights, double alpha,
                   double epsilon = 1e-6);

// That of a Gaussian about 1: inverse_variance mean((w - 1)^2) with w clamped
// to [epsilon, largest] (MIR's logGaussian).
at::Tensor LogGaussian(const at::Tensor& weights, double inverse_variance,
                       double largest = 5, double epsilon = 1e-6);

}  // namespace mir::losses

#endif  // MIR_LOSSES_WEIGHT_PRIORS_H_
