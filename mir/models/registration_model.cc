#include "mir/models/registration_model.h"

#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace mir::models {

void RegistrationModel::SetHyperparameters(std::vector<double> values) {
  TORCH_CHECK_VALUE(
      static_cast<int64_t>(values.size()) == HyperparameterCount() &&
          std::all_of(values.begin(), values.end(),
                      [](double value) { return value >= 0 && value <= 1; }),
      HyperparameterCount() == 0
          ? std::string("the model is no hypernetwork and takes no "
                        "hyperparameters (--hyper)")
          : c10::str("the model takes ", HyperparameterCount(),
                     " hyperparameters (--hyper), each from 0 to 1; got ",
                     values));
  hyperparameters_ = std::move(values);
}

at::Tensor RegistrationModel::HyperparameterRow() const {
  return at::tensor(hyperparameters(), at::kFloat).unsqueeze(0);
}

}  // namespace mir::models
