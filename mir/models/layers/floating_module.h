#ifndef MIR_MODELS_LAYERS_FLOATING_MODULE_H_
#define MIR_MODELS_LAYERS_FLOATING_MODULE_H_

#include <torch/nn/module.h>

namespace mir::models {

// A module some of whose buffers are integers: `to` with a dtype leaves those
// as they are, as in Python; torch::nn::Module would convert them.
class FloatingModule : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;

  void to(torch::Device device, torch::Dtype dtype,
          bool non_blocking = false) override {
    Convert([&](const at::Tensor& tensor) {
      return tensor.to(
          device, tensor.is_floating_point() ? dtype : tensor.scalar_type(),
          non_blocking);
    });
    for (const auto& child : children()) child->to(device, dtype, non_blocking);
  }
  void to(torch::Dtype dtype, bool non_blocking = false) override {
    Convert([&](const at::Tensor& tensor) {
      return tensor.is_floating_point() ? tensor.to(dtype, non_blocking)
                                        : tensor;
    });
    for (const auto& child : children()) child->to(dtype, non_blocking);
  }
  void to(torch::Device device, bool non_blocking = false) override {
    torch::nn::Module::to(device, non_blocking);
  }

 private:
  template <typename Conversion>
  void Convert(const Conversion& conversion) {
    for (at::Tensor& tensor : parameters(/*recurse=*/false)) {
      tensor.set_data(conversion(tensor));
    }
    for (at::Tensor& tensor : buffers(/*recurse=*/false)) {
      tensor.set_data(conversion(tensor));
    }
  }
};

}  // namespace mir::models

#endif  // MIR_MODELS_LAYERS_FLOATING_MODULE_H_
