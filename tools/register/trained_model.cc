#include "tools/register/trained_model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "mir/base/catch_torch.h"
#include "mir/base/exit_status.h"
#include "mir/base/status_macros.h"
#include "mir/launch/exit_codes.h"
#include "mir/models/model_list.h"
#include "mir/models/registry.h"
#include "mir/training/training_state.h"

namespace mir::tools {
namespace {

// An entry of a checkpoint's description; `otherwise` where it is missing or of
// another kind.
std::string Text(const training::Description& description, const char* key,
                 const std::string& otherwise) {
  const auto found = description.find(key);
  return found != description.end() && found->is_string()
             ? found->get<std::string>()
             : otherwise;
}

}  // namespace

absl::StatusOr<TrainedModel> LoadTrainedModel(
    const TrainedModelOptions& options, const c10::Device& device) {
  MIR_ASSIGN_OR_RETURN(const training::Description description,
                       training::ReadDescription(options.weights));
  const std::string recorded_name = Text(description, "model", "");
  TrainedModel trained;
  trained.name = options.model.empty() ? recorded_name : options.model;
  if (trained.name.empty()) {
    return WithExitCode(
        absl::InvalidArgumentError(absl::StrCat(
            options.weights,
            " does not say which model it holds; say so with --model (",
            absl::StrJoin(models::ModelNames(), ", "), ") and --config")),
        launch::kArguments);
  }

  nlohmann::json configuration;
  if (options.configuration.empty() && trained.name == recorded_name) {
    configuration =
        description.value("configuration", nlohmann::json::object());
  } else {
    MIR_ASSIGN_OR_RETURN(
        configuration,
        models::ModelConfig(trained.name, options.configuration.empty()
                                              ? "default"
                                              : options.configuration));
  }
  absl::StatusOr<std::shared_ptr<models::RegistrationModel>> model =
      models::BuildModel(trained.name, configuration);
  if (!model.ok()) return WithExitCode(model.status(), launch::kCheckpoint);
  trained.model = *std::move(model);
  MIR_RETURN_IF_ERROR(training::LoadWeights(options.weights, *trained.model));
  trained.model->to(device);
  trained.model->eval();

  std::vector<double> hyperparameters = options.hyperparameters;
  if (const auto recorded = description.find("hyperparameters");
      hyperparameters.empty() && recorded != description.end() &&
      recorded->is_array() && trained.name == recorded_name) {
    for (const nlohmann::json& value : *recorded) {
      if (value.is_number()) hyperparameters.push_back(value.get<double>());
    }
  }
  if (!hyperparameters.empty()) {
    MIR_RETURN_IF_ERROR(WithExitCode(CatchTorch([&] {
                                       trained.model->SetHyperparameters(
                                           hyperparameters);
                                       return absl::OkStatus();
                                     }),
                                     launch::kArguments));
  }

  if (Text(description, "warp_convention", "mir") == "exact") {
    trained.convention = geometry::WarpConvention::kExact;
  }
  const std::string intensity = options.intensity.empty()
                                    ? Text(description, "intensity", "minmax")
                                    : options.intensity;
  MIR_ASSIGN_OR_RETURN(trained.prepare.intensity,
                       data::ParseIntensity(intensity));
  if (const auto spacing = description.find("spacing_mm");
      spacing != description.end() && spacing->is_number()) {
    trained.prepare.spacing_mm = spacing->get<double>();
  }
  trained.prepare.reorient = !description.empty();
  return trained;
}

}  // namespace mir::tools
