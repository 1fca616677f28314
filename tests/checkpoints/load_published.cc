// The C++ side of published_weights_test: loads a file strictly, and compares
// every value with the fill rule.
//
//   load_published FILE MODEL CONFIGURATION [KEY=VALUE...]
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mir/base/status_macros.h"
#include "mir/checkpoint/archive.h"
#include "mir/checkpoint/module_state.h"
#include "mir/checkpoint/state_dict.h"
#include "mir/checkpoint/value.h"
#include "mir/models/layers/weights.h"
#include "mir/models/registry.h"
#include "mir/testing/fill.h"

namespace mir::checkpoint {
namespace {

constexpr uint64_t kSeed = 1;

absl::Status CheckValues(const StateDict& state) {
  for (const auto& [name, tensor] : state.entries) {
    const std::vector<int64_t> shape = tensor.sizes().vec();
    const at::Tensor expected =
        tensor.is_floating_point()
            ? testing::FillValues(name, shape, shape.size() > 1 ? 2 : 1, kSeed)
            : at::arange(tensor.numel()).view(shape);
    if (!at::equal(tensor, expected)) {
      return absl::InternalError(absl::StrCat(name, " has other values"));
    }
  }
  return absl::OkStatus();
}

absl::Status Run(const std::vector<std::string>& arguments) {
  if (arguments.size() < 3) {
    return absl::InvalidArgumentError(
        "usage: load_published FILE MODEL CONFIGURATION [KEY=VALUE...]");
  }
  MIR_ASSIGN_OR_RETURN(
      const nlohmann::json config,
      models::ModelConfig(arguments[1], arguments[2],
                          {arguments.begin() + 3, arguments.end()}));
  MIR_ASSIGN_OR_RETURN(const std::shared_ptr<models::RegistrationModel> model,
                       models::BuildWithoutWeights([&] {
                         return models::BuildModel(arguments[1], config);
                       }));
  models::AllocateWeights(*model);
  MIR_ASSIGN_OR_RETURN(const Value file, ReadCheckpoint(arguments[0]));
  MIR_ASSIGN_OR_RETURN(const StateDict state, FindStateDict(file));
  MIR_ASSIGN_OR_RETURN(const LoadReport report,
                       LoadStateDict(*model, state, /*strict=*/true));
  MIR_RETURN_IF_ERROR(CheckValues(ModuleState(*model)));
  std::cout << report.loaded.size() << " tensors loaded into " << arguments[1]
            << "\n";
  return absl::OkStatus();
}

}  // namespace
}  // namespace mir::checkpoint

int main(int argc, char** argv) {
  const absl::Status status =
      mir::checkpoint::Run(std::vector<std::string>(argv + 1, argv + argc));
  if (!status.ok()) std::cerr << "error: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
