#include "tools/checkpoint/check.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "mir/base/exit_status.h"
#include "mir/base/status_macros.h"
#include "mir/checkpoint/module_state.h"
#include "mir/launch/exit_codes.h"
#include "mir/models/layers/weights.h"
#include "mir/models/model_list.h"
#include "mir/models/registry.h"
#include "mir/training/json_value.h"

namespace mir::tools {
namespace {

constexpr char kOfTheFile[] = "of the file";

// The known models and configurations that the weights fit.
Report Fitting(const checkpoint::StateDict& state,
               const std::string& first_model) {
  std::vector<models::ModelDescription> list = models::ModelList();
  // What is most likely comes first.
  std::stable_partition(list.begin(), list.end(), [&](const auto& description) {
    return description.name == first_model;
  });
  Report fitting = Report::array();
  const models::WithoutWeights scope;  // Some hold billions of them.
  for (const models::ModelDescription& description : list) {
    for (const std::string& configuration : description.configurations) {
      const auto config = models::ModelConfig(description.name, configuration);
      if (!config.ok()) continue;
      // One that this program or machine cannot build fits nothing here.
      const auto model = models::BuildModel(description.name, *config);
      if (model.ok() && checkpoint::CompareStateDict(**model, state).fits()) {
        fitting.push_back(
            {{"model", description.name}, {"configuration", configuration}});
      }
    }
  }
  return fitting;
}

std::string FittingText(const Report& fitting) {
  return absl::StrJoin(
      fitting, ", ", [](std::string* out, const Report& entry) {
        absl::StrAppend(out, entry["model"].get<std::string>(), " (",
                        entry["configuration"].get<std::string>(), ")");
      });
}

}  // namespace

absl::StatusOr<ChosenModel> BuildChosen(const ModelChoice& choice,
                                        const WeightsFile& file) {
  ChosenModel chosen;
  nlohmann::json about = nlohmann::json::object();
  if (const checkpoint::Value* const said = file.content.Find("mir");
      said != nullptr && said->dict() != nullptr) {
    about = training::JsonFromValue(*said);
  }
  const auto model = about.find("model");
  const std::string recorded = model != about.end() && model->is_string()
                                   ? model->get<std::string>()
                                   : "";
  chosen.name = choice.model.empty() ? recorded : choice.model;
  if (chosen.name.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.path, " does not say which model it holds; say so with --model (",
        absl::StrJoin(models::ModelNames(), ", "), ")"));
  }
  // Of the file, or by name; the changes apply to either.
  const auto recorded_config = about.find("configuration");
  const bool of_the_file =
      choice.configuration.empty() && chosen.name == recorded &&
      recorded_config != about.end() && recorded_config->is_object();
  const std::string named =
      choice.configuration.empty() ? "default" : choice.configuration;
  chosen.configuration = of_the_file ? kOfTheFile : named;
  MIR_ASSIGN_OR_RETURN(nlohmann::json config,
                       models::ModelConfig(chosen.name, named, choice.changes));
  if (of_the_file) {
    nlohmann::json of_file = *recorded_config;
    for (const std::string& change : choice.changes) {
      const std::string key = change.substr(0, change.find('='));
      of_file[key] = config[key];
    }
    config = std::move(of_file);
  }
  absl::StatusOr<std::shared_ptr<models::RegistrationModel>> built =
      models::BuildModel(chosen.name, config);
  if (!built.ok()) {
    return chosen.configuration == kOfTheFile
               ? AtFile(file.path, built.status())
               : WithExitCode(built.status(), launch::kArguments);
  }
  chosen.model = *std::move(built);
  return chosen;
}

Report Check(const WeightsFile& file, const ChosenModel& chosen) {
  const checkpoint::LoadReport report =
      checkpoint::CompareStateDict(*chosen.model, file.state);
  Report fitting = Report::array();
  if (!report.fits()) fitting = Fitting(file.state, chosen.name);
  return {{"file", file.path},
          {"model", chosen.name},
          {"configuration", chosen.configuration},
          {"fits", report.fits()},
          {"matching", report.loaded.size()},
          {"missing", report.missing},
          {"unexpected", report.unexpected},
          {"mismatched", report.mismatched},
          {"ignored_grids", report.ignored_grids},
          {"would_fit", std::move(fitting)}};
}

std::string CheckText(const Report& report) {
  std::string text =
      absl::StrCat(report["matching"].dump(), " tensors match\n");
  for (const auto& [list, words] :
       {std::pair("missing", "missing in the file"),
        std::pair("unexpected", "not in the model"),
        std::pair("mismatched", "of another shape"),
        std::pair("ignored_grids", "a sampling grid, ignored")}) {
    for (const Report& name : report[list]) {
      absl::StrAppend(&text, words, ": ",
                      absl::Utf8SafeCHexEscape(name.get<std::string>()), "\n");
    }
  }
  return text;
}

std::string CheckVerdict(const Report& report) {
  const std::string chosen =
      absl::StrCat(report["model"].get<std::string>(), " (",
                   report["configuration"].get<std::string>(), ")");
  if (report["fits"].get<bool>()) return absl::StrCat("fits ", chosen);
  return absl::StrCat(
      "does not fit ", chosen, ": ", report["missing"].size(), " missing, ",
      report["unexpected"].size(), " unexpected, ", report["mismatched"].size(),
      " of another shape; ",
      report["would_fit"].empty()
          ? "no known configuration fits"
          : absl::StrCat("it fits ", FittingText(report["would_fit"])));
}

}  // namespace mir::tools
