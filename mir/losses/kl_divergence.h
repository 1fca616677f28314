#ifndef MIR_LOSSES_KL_DIVERGENCE_H_
#define MIR_LOSSES_KL_DIVERGENCE_H_

#include <ATen/core/ATen_fwd.h>

namespace mir::losses {

// The Kullback-Leibler divergences KL(P || Q) of two fields of independent
// Gaussians (Kullback and Leibler, 1951), such as the velocities of a
// probabilistic model. At least 0.
//
//   mean_p, log_p, mean_q, log_q  [N, C, ...], one shape, floating
//   returns                       scalar, float32 (float64 where one is)
//
// Computes in float32 (float64) under any autocast; differentiable in all four;
// thread-safe. Throw c10::ValueError for shapes that differ, empty tensors or,
// on the CPU, values that are not finite; c10::TypeError for integers. exp of
// the logarithms must be in float32's range.

// The mean over all elements; the logarithms are of standard deviations (MIR's
// KL_divergence).
at::Tensor KlDivergence(const at::Tensor& mean_p, const at::Tensor& log_p,
                        const at::Tensor& mean_q, const at::Tensor& log_q);

// The sum over channels and the mean over the rest; the logarithms are of
// variances (MIR's MultiVariateKL_divergence).
at::Tensor MultivariateKlDivergence(const at::Tensor& mean_p,
                                    const at::Tensor& log_p,
                                    const at::Tensor& mean_q,
                                    const at::Tensor& log_q);

}  // namespace mir::losses

#endif  // MIR_LOSSES_KL_DIVERGENCE_H_
