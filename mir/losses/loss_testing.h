#ifndef MIR_LOSSES_LOSS_TESTING_H_
#define MIR_LOSSES_LOSS_TESTING_H_

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/rand.h>

#include <cstdint>
#include <vector>

// What tests of losses share.
namespace mir::losses {

// Uniform from 0 to 1, the same for a seed; drawn in float64, then converted.
inline at::Tensor Random(at::IntArrayRef sizes, uint64_t seed,
                         at::ScalarType dtype = at::kDouble) {
  return at::rand(sizes, at::detail::createCPUGenerator(seed),
                  at::TensorOptions(at::kDouble))
      .to(dtype);
}

// The value, and three times the gradients to both images.
template <typename Loss>
std::vector<at::Tensor> ValueAndGradients(const Loss& loss,
                                          const at::Tensor& fixed,
                                          const at::Tensor& moving) {
  const at::Tensor f = fixed.clone().requires_grad_();
  const at::Tensor m = moving.clone().requires_grad_();
  const at::Tensor value = loss(f, m);
  (value * 3).backward();
  return {value.detach(), f.grad(), m.grad()};
}

}  // namespace mir::losses

#endif  // MIR_LOSSES_LOSS_TESTING_H_
