#ifndef MIR_MODELS_MODEL_LIST_H_
#define MIR_MODELS_MODEL_LIST_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// The models of this package by name, as mir/models/models.json lists them: one
// list for the runner, which has no LibTorch, and for the libraries. It is
// compiled in.
namespace mir::models {

// How a model is trained where the command line does not say.
struct TrainingDefaults {
  std::string similarity;  // As --similarity names it.
  double similarity_weight = 1;
  std::string regularizer;  // As --regularizer names it.
  double regularizer_weight = 1;
  double learning_rate = 1e-4;
  // As --prior names it, of models that weigh the regularizer by voxel; empty
  // for others.
  std::string prior = {};
};

struct ModelDescription {
  std::string name;
  std::string summary;                      // One line.
  std::string binary;                       // Label that trains it: //mir/...
  std::vector<std::string> configurations;  // Names, "default" among them.
  TrainingDefaults training;
};

// All models, by name.
const std::vector<ModelDescription>& ModelList();

// Their names.
std::vector<std::string> ModelNames();

// The model of that name. INVALID_ARGUMENT names the nearest and lists all.
absl::StatusOr<ModelDescription> FindModel(absl::string_view name);

// The configuration of a model: a JSON object with the family's keys.
//
//   name           a model's name
//   configuration  the name of one of its configurations, or a path that ends
//                  in .json: an object whose keys replace those of `default`
//   overrides      KEY=VALUE, applied in order; VALUE is JSON, or else a string
//
// INVALID_ARGUMENT for an unknown model, configuration or key (it names the
// nearest and lists all), an override without `=`, and a file that is missing
// or no JSON object. The values are checked where the model is built.
absl::StatusOr<nlohmann::json> ModelConfig(
    absl::string_view name, absl::string_view configuration = "default",
    const std::vector<std::string>& overrides = {});

}  // namespace mir::models

#endif  // MIR_MODELS_MODEL_LIST_H_
