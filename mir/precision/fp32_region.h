#ifndef MIR_PRECISION_FP32_REGION_H_
#define MIR_PRECISION_FP32_REGION_H_

#include <ATen/core/ATen_fwd.h>
#include <c10/core/ScalarType.h>

#include <memory>

namespace mir::precision {

// The type that losses, measures and geometry compute in for an input of type
// `dtype`: float64 for float64, float32 for everything else.
at::ScalarType ComputeType(at::ScalarType dtype);

// `tensor` in its ComputeType; itself where it has that already.
// Differentiable: the gradient comes back in the type of `tensor`.
at::Tensor ToComputeType(const at::Tensor& tensor);

// A scope in which float32 means float32: autocast is off on the CPU and on
// CUDA, and neither cuBLAS nor cuDNN's convolutions use TF32.
//
// Scopes nest. Autocast and cuBLAS are switched for this thread. cuDNN's
// switch is one for the process: other threads' convolutions, too, are without
// TF32 until the last region is left.
//
// A backward pass started after the region is not in it. Code whose gradient
// multiplies matrices or convolves needs a region in its backward function.
class Fp32Region {
 public:
  Fp32Region();
  ~Fp32Region();
  Fp32Region(const Fp32Region&) = delete;
  Fp32Region& operator=(const Fp32Region&) = delete;

 private:
  struct Guards;
  const std::unique_ptr<Guards> guards_;
};

}  // namespace mir::precision

#endif  // MIR_PRECISION_FP32_REGION_H_
