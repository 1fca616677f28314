#ifndef MIR_MODELS_REGISTRY_H_
#define MIR_MODELS_REGISTRY_H_

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "mir/models/model_list.h"
#include "mir/models/registration_model.h"

// Builds models by name. A program can build those families that it links:
// //mir/models/<family>, or all of them with //mir/models:all_models.
namespace mir::models {

// Makes `name`, of models.json, buildable; a family calls it once, before
// main. Always true, to initialise a constant with.
bool RegisterModel(const std::string& name, ModelFactory factory);

// The names that this program can build, sorted.
std::vector<std::string> RegisteredModels();

// Builds the model `name` from a configuration such as ModelConfig gives.
//
// INVALID_ARGUMENT where the name is unknown (it names the nearest) or the
// configuration is not one of the family's; FAILED_PRECONDITION where the
// program does not link the family; RESOURCE_EXHAUSTED where memory does not
// suffice.
absl::StatusOr<std::shared_ptr<RegistrationModel>> BuildModel(
    absl::string_view name, const nlohmann::json& config);

}  // namespace mir::models

#endif  // MIR_MODELS_REGISTRY_H_
