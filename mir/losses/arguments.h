#ifndef MIR_LOSSES_ARGUMENTS_H_
#define MIR_LOSSES_ARGUMENTS_H_

#include <ATen/core/ATen_fwd.h>
#include <c10/core/ScalarType.h>

namespace mir::losses {

// Throws c10::ValueError or c10::TypeError, saying what was wanted and what
// came, unless both tensors are floating, not empty, on one device and of one
// shape, [N, C, D, H, W] or [N, C, H, W]. `loss` begins the message.
void CheckImagePair(const char* loss, const at::Tensor& fixed,
                    const at::Tensor& moving);

// Throws c10::ValueError that names the first element of `tensor` that is NaN
// or infinite, if there is one. On a GPU this waits for it.
void CheckFinite(const char* loss, const char* name, const at::Tensor& tensor);

// float64 where either tensor is, else float32.
at::ScalarType CommonComputeType(const at::Tensor& a, const at::Tensor& b);

}  // namespace mir::losses

#endif  // MIR_LOSSES_ARGUMENTS_H_
