#ifndef MIR_MODELS_LAYERS_MODULE_LIST_H_
#define MIR_MODELS_LAYERS_MODULE_LIST_H_

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

namespace mir::models {

// Modules of one type under the names 0, 1, ..., as Python's ModuleList and
// Sequential name theirs.
template <typename T>
class ModuleList : public torch::nn::Module {
 public:
  ModuleList() : torch::nn::Module("ModuleList") {}

  void Append(std::shared_ptr<T> module) {
    modules_.push_back(
        register_module(std::to_string(modules_.size()), std::move(module)));
  }

  T& operator[](size_t i) const { return *modules_[i]; }
  size_t size() const { return modules_.size(); }
  auto begin() const { return modules_.begin(); }
  auto end() const { return modules_.end(); }

 private:
  std::vector<std::shared_ptr<T>> modules_;
};

}  // namespace mir::models

#endif  // MIR_MODELS_LAYERS_MODULE_LIST_H_
