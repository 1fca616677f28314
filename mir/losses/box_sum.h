#ifndef MIR_LOSSES_BOX_SUM_H_
#define MIR_LOSSES_BOX_SUM_H_

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <vector>

namespace mir::losses {

// Sums over a box around each element.
//
//   image    [N, C, ...], floating, on any device
//   radii    one per axis after the second; the box spans 2 * radius + 1
//            elements along each, and elements outside count as zeros
//   returns  as `image`
//
// Computes in the dtype of `image`: sums that are subtracted from each other
// want float64. No running sums, so nothing large that has left the box leaves
// its rounding behind; the same bits in every call. Differentiable any number
// of times.
at::Tensor BoxSum(const at::Tensor& image, const std::vector<int64_t>& radii);

// As BoxSum, with weights: `taps` holds, for each axis after the second, those
// of the elements around each, symmetric and odd in number.
at::Tensor WindowSum(const at::Tensor& image,
                     const std::vector<std::vector<double>>& taps);

// exp(-k^2 / (2 sigma^2)) for k from -window / 2 to window / 2, divided by
// their sum. `window` is odd.
std::vector<double> GaussianTaps(int64_t window, double sigma);

}  // namespace mir::losses

#endif  // MIR_LOSSES_BOX_SUM_H_
