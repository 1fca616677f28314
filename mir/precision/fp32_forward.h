#ifndef MIR_PRECISION_FP32_FORWARD_H_
#define MIR_PRECISION_FP32_FORWARD_H_

#include <ATen/core/Tensor.h>

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "mir/precision/fp32_region.h"

namespace mir::precision {

// What Fp32Forward does to one argument or result: float16 and bfloat16
// tensors become float32, also within vectors, pairs and tuples; anything else
// stays as it is.
inline at::Tensor Widened(const at::Tensor& tensor) {
  return tensor.defined() && at::isReducedFloatingType(tensor.scalar_type())
             ? tensor.to(at::kFloat)
             : tensor;
}
inline std::vector<at::Tensor> Widened(std::vector<at::Tensor> tensors) {
  for (at::Tensor& tensor : tensors) tensor = Widened(tensor);
  return tensors;
}
template <typename T,
          typename = std::enable_if_t<
              !std::is_same_v<std::decay_t<T>, at::Tensor> &&
              !std::is_same_v<std::decay_t<T>, std::vector<at::Tensor>>>>
decltype(auto) Widened(T&& other) {
  return std::forward<T>(other);
}
template <typename... T>
std::tuple<T...> Widened(std::tuple<T...> tensors) {
  return std::apply(
      [](const T&... own) { return std::tuple<T...>(Widened(own)...); },
      tensors);
}
template <typename T, typename U>
std::pair<T, U> Widened(std::pair<T, U> tensors) {
  return {Widened(tensors.first), Widened(tensors.second)};
}

// A function, or a module by its holder, that computes in float32 whatever it
// is called from and with:
//
//   const Fp32Forward warp([](const at::Tensor& image, const at::Tensor& flow)
//   {
//     return geometry::Warp(image, flow);
//   });
//
// float16 and bfloat16 arguments are cast to float32, autocast and TF32 are off
// inside (Fp32Region), and so is the result float32. float64 stays float64.
// Gradients come back in the arguments' own types. A module's weights must be
// float32 (or float64). Copies share what the function shares.
template <typename Function>
class Fp32Forward {
 public:
  explicit Fp32Forward(Function function) : function_(std::move(function)) {}

  template <typename... Arguments>
  auto operator()(Arguments&&... arguments) {
    const Fp32Region region;
    return Widened(function_(Widened(std::forward<Arguments>(arguments))...));
  }
  template <typename... Arguments>
  auto operator()(Arguments&&... arguments) const {
    const Fp32Region region;
    return Widened(function_(Widened(std::forward<Arguments>(arguments))...));
  }

 private:
  Function function_;
};

}  // namespace mir::precision

#endif  // MIR_PRECISION_FP32_FORWARD_H_
