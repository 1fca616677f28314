#ifndef MIR_LOSSES_ARGUMENTS_H_
#define MIR_LOSSES_ARGUMENTS_H_

#include <ATen/core/ATen_fwd.h>
#include <c10/core/ScalarType.h>

#include <utility>

namespace mir::losses {

// Throws c10::ValueError or c10::TypeError, saying what was wanted and what
// came, unless both tensors are floating, not empty, on one device and of one
// shape, [N, C, D, H, W] or [N, C, H, W]. `loss` begins the message.
void CheckImagePair(const char* loss, const at::Tensor& fixed,
                    const at::Tensor& moving);

// Likewise unless the tensor is a floating displacement, [N, 3, D, H, W] or
// [N, 2, H, W], and not empty.
void CheckDisplacement(const char* loss, const at::Tensor& displacement);

// Likewise unless the weights are floating or bool, finite, not negative, and
// of the shape of `image` with any of N and C as 1, on its device. On a GPU the
// values are not looked at.
void CheckWeight(const char* loss, const at::Tensor& weight,
                 const at::Tensor& image);

// The mean of `values` where each counts its weight, broadcast over them; 0
// where all weights are.
at::Tensor WeightedMean(const at::Tensor& values, const at::Tensor& weight);

// Throws c10::ValueError that names the first element of `tensor` that is NaN
// or infinite, if there is one. On a GPU this waits for it.
void CheckFinite(const char* loss, const char* name, const at::Tensor& tensor);

// The same where it is asked for or costs no waiting: on the CPU.
void CheckFiniteIf(bool check_on_gpu, const char* loss, const char* name,
                   const at::Tensor& tensor);

// The least and the greatest value of an image; for a constant image a range
// that is not empty and holds it, whatever it is. On a GPU this waits for it.
std::pair<double, double> IntensityRange(const at::Tensor& image);

// A 0 that depends on `tensor`: its gradient is 0.
at::Tensor ZeroOf(const at::Tensor& tensor);

// float64 where either tensor is, else float32.
at::ScalarType CommonComputeType(const at::Tensor& a, const at::Tensor& b);

}  // namespace mir::losses

#endif  // MIR_LOSSES_ARGUMENTS_H_
