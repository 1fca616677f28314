#ifndef MIR_TESTING_GRADIENT_CHECK_H_
#define MIR_TESTING_GRADIENT_CHECK_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace mir::testing {

// Compares autograd with central differences, for the scalar
// sum(w * function(inputs)) with fixed random weights w in [0.5, 1.5].
//
//   function  float64 in, float64 out; the same result in every call
//   inputs    float64, contiguous; each gets a gradient
//   step      of the differences, in the inputs' units: keep kinks further
//             than that away
//   returns   the largest difference over all inputs' elements, relative to
//             the largest absolute gradient; infinity where one is not finite
double GradientError(
    const std::function<at::Tensor(const std::vector<at::Tensor>&)>& function,
    const std::vector<at::Tensor>& inputs, double step = 1e-6);

// The gradients of sum(w * out) to all leaves, for fixed random weights w, and
// `out` itself behind them.
std::vector<at::Tensor> GradientsAndOutput(
    const at::Tensor& out, const std::vector<at::Tensor>& leaves);

}  // namespace mir::testing

#endif  // MIR_TESTING_GRADIENT_CHECK_H_
