#ifndef MIR_PRECISION_OP_FALLBACK_H_
#define MIR_PRECISION_OP_FALLBACK_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "mir/precision/fp32_region.h"

namespace mir::precision {

// Operators that lack 16-bit kernels on some device or in some version of
// LibTorch.
enum class Op {
  kAveragePool2d,
  kAveragePool3d,
  kUpsampleNearest3d,
  kUpsampleTrilinear3d,
  kReplicationPad3d,
  kDepthwiseConvolution3d,
  kFourierTransform,  // Of sizes that are no powers of two.
};

// Whether LibTorch has the operator's kernels, forward and backward, for
// `dtype` on `device`. Tried on a small tensor when first asked, and then
// known. Thread-safe.
bool HasKernel(Op op, const c10::Device& device, c10::ScalarType dtype);

// function(tensors...), where `function` calls `op` on the first of them:
//
//   const at::Tensor pooled = WithFallback(
//       Op::kAveragePool3d,
//       [](const at::Tensor& x) { return at::avg_pool3d(x, {2, 2, 2}); }, x);
//
// Where `op` has no kernel for the first tensor's dtype on its device, all are
// cast to float32, autocast and TF32 are off, and the result comes back in that
// dtype (a complex one as it is). Otherwise nothing is changed. Differentiable.
template <typename Function, typename... Tensors>
at::Tensor WithFallback(Op op, const Function& function,
                        const at::Tensor& first, const Tensors&... others) {
  const at::ScalarType dtype = first.scalar_type();
  if (!at::isReducedFloatingType(dtype) ||
      HasKernel(op, first.device(), dtype)) {
    return function(first, others...);
  }
  const Fp32Region in_float32;
  const at::Tensor result =
      function(ToComputeType(first), ToComputeType(others)...);
  return result.is_complex() ? result : result.to(dtype);
}

}  // namespace mir::precision

#endif  // MIR_PRECISION_OP_FALLBACK_H_
