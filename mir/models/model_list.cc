#include "mir/models/model_list.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "mir/base/nearest.h"
#include "mir/base/status_macros.h"
#include "mir/models/models_json.h"

namespace mir::models {
namespace {

const nlohmann::json& Models() {
  static const auto* const models =
      new nlohmann::json(nlohmann::json::parse(kModelsJson));
  return *models;
}

std::vector<std::string> Keys(const nlohmann::json& object) {
  std::vector<std::string> keys;
  for (const auto& item : object.items()) keys.push_back(item.key());
  return keys;
}

absl::Status Unknown(absl::string_view what, absl::string_view name,
                     const std::vector<std::string>& known) {
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no ", what, " '", name, "'", DidYouMean(name, known),
      " (there are: ", absl::StrJoin(known, ", "), ")"));
}

absl::StatusOr<nlohmann::json> ReadObject(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read the configuration file ", path));
  }
  nlohmann::json object =
      nlohmann::json::parse(file, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " must hold one JSON object, such as ",
                     R"({"img_size": [160, 192, 224]}, and does not)"));
  }
  return object;
}

}  // namespace

const std::vector<ModelDescription>& ModelList() {
  static const auto* const list = [] {
    auto* models = new std::vector<ModelDescription>;
    for (const auto& item : Models().items()) {
      const nlohmann::json& training = item.value().at("training");
      models->push_back(
          {item.key(),
           item.value().at("summary"),
           item.value().at("binary"),
           Keys(item.value().at("configurations")),
           {training.at("similarity"), training.at("similarity_weight"),
            training.at("regularizer"), training.at("regularizer_weight"),
            training.at("lr"), training.value("prior", "")}});
    }
    return models;
  }();
  return *list;
}

std::vector<std::string> ModelNames() { return Keys(Models()); }

absl::StatusOr<ModelDescription> FindModel(absl::string_view name) {
  for (const ModelDescription& model : ModelList()) {
    if (model.name == name) return model;
  }
  return Unknown("model", name, ModelNames());
}

absl::StatusOr<nlohmann::json> ModelConfig(
    absl::string_view name, absl::string_view configuration,
    const std::vector<std::string>& overrides) {
  MIR_ASSIGN_OR_RETURN(const ModelDescription model, FindModel(name));
  const nlohmann::json& known = Models().at(model.name).at("configurations");
  nlohmann::json config = known.at("default");
  const auto set = [&](const std::string& key, nlohmann::json value) {
    if (!config.contains(key)) {
      return Unknown(absl::StrCat("key of a ", name, " configuration"), key,
                     Keys(config));
    }
    config[key] = std::move(value);
    return absl::OkStatus();
  };

  if (absl::EndsWith(configuration, ".json")) {
    MIR_ASSIGN_OR_RETURN(const nlohmann::json file,
                         ReadObject(std::string(configuration)));
    for (const auto& item : file.items()) {
      MIR_RETURN_IF_ERROR(set(item.key(), item.value()));
    }
  } else if (known.contains(std::string(configuration))) {
    config.update(known.at(std::string(configuration)));
  } else {
    return Unknown(absl::StrCat(name, " configuration"), configuration,
                   model.configurations);
  }

  for (const std::string& override : overrides) {
    const size_t equals = override.find('=');
    if (equals == std::string::npos || equals == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "an override is KEY=VALUE, such as img_size=[64,64,64], not '",
          override, "'"));
    }
    const std::string text = override.substr(equals + 1);
    nlohmann::json value =
        nlohmann::json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
    if (value.is_discarded()) value = text;
    MIR_RETURN_IF_ERROR(set(override.substr(0, equals), std::move(value)));
  }
  return config;
}

}  // namespace mir::models
