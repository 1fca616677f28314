#include "mir/models/registry.h"

#include <map>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "mir/base/catch_torch.h"
#include "mir/base/status_macros.h"

namespace mir::models {
namespace {

// Filled before main, by one thread.
std::map<std::string, ModelFactory>& Factories() {
  static auto* const factories = new std::map<std::string, ModelFactory>;
  return *factories;
}

}  // namespace

bool RegisterModel(const std::string& name, ModelFactory factory) {
  Factories()[name] = std::move(factory);
  return true;
}

std::vector<std::string> RegisteredModels() {
  std::vector<std::string> names;
  for (const auto& [name, factory] : Factories()) names.push_back(name);
  return names;
}

absl::StatusOr<std::shared_ptr<RegistrationModel>> BuildModel(
    absl::string_view name, const nlohmann::json& config) {
  MIR_RETURN_IF_ERROR(FindModel(name).status());
  const auto factory = Factories().find(std::string(name));
  if (factory == Factories().end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("this program does not contain the model ", name,
                     ", only: ", absl::StrJoin(RegisteredModels(), ", "),
                     "; link its family, or use its own binary"));
  }
  std::shared_ptr<RegistrationModel> model;
  MIR_RETURN_IF_ERROR(CatchTorch([&]() -> absl::Status {
    MIR_ASSIGN_OR_RETURN(model, factory->second(config));
    return absl::OkStatus();
  }));
  return model;
}

}  // namespace mir::models
