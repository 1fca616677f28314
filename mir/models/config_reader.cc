#include "mir/models/config_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "mir/base/nearest.h"

namespace mir::models {

using nlohmann::json;

namespace {

bool IsInteger(const json& value, int64_t least, int64_t most) {
  return value.is_number_integer() && value >= least && value <= most;
}

}  // namespace

ConfigReader::ConfigReader(std::string model, const json& config,
                           const std::vector<std::string>& keys)
    : model_(std::move(model)), config_(config) {
  if (!config.is_object()) {
    status_ = absl::InvalidArgumentError(absl::StrCat(
        model_, " wants a configuration object, not ", config.dump()));
    return;
  }
  for (const auto& item : config.items()) {
    if (std::find(keys.begin(), keys.end(), item.key()) == keys.end()) {
      status_ = absl::InvalidArgumentError(
          absl::StrCat(model_, " has no setting '", item.key(), "'",
                       DidYouMean(item.key(), keys)));
      return;
    }
  }
}

const json* ConfigReader::Find(const char* key) const {
  if (!status_.ok()) return nullptr;
  const auto found = config_.find(key);
  return found == config_.end() ? nullptr : &*found;
}

void ConfigReader::Wanted(const char* key, const std::string& wanted) {
  const json* const value = Find(key);
  status_ = absl::InvalidArgumentError(absl::StrCat(
      model_, " wants ", key, " to be ", wanted,
      value == nullptr ? "" : absl::StrCat(", not ", value->dump())));
}

void ConfigReader::Read(const char* key, bool* value) {
  const json* const found = Find(key);
  if (found == nullptr) return;
  if (!found->is_boolean()) return Wanted(key, "true or false");
  *value = *found;
}

void ConfigReader::Read(const char* key, int64_t* value, int64_t least,
                        int64_t most) {
  const json* const found = Find(key);
  if (found == nullptr) return;
  if (!IsInteger(*found, least, most)) {
    return Wanted(key,
                  absl::StrCat("a whole number from ", least, " to ", most));
  }
  *value = *found;
}

void ConfigReader::Read(const char* key, double* value, double least,
                        double most) {
  const json* const found = Find(key);
  if (found == nullptr) return;
  if (!found->is_number() || *found < least || *found > most) {
    return Wanted(key, absl::StrCat("a number from ", least, " to ", most));
  }
  *value = *found;
}

void ConfigReader::Read(const char* key, std::vector<int64_t>* values,
                        int64_t least, int64_t most) {
  const json* const found = Find(key);
  if (found == nullptr) return;
  if (!found->is_array() ||
      !std::all_of(found->begin(), found->end(), [&](const json& entry) {
        return IsInteger(entry, least, most);
      })) {
    return Wanted(key, absl::StrCat("a list of whole numbers from ", least,
                                    " to ", most));
  }
  *values = found->get<std::vector<int64_t>>();
}

void ConfigReader::Read(const char* key, std::string* value,
                        const std::vector<std::string>& choices) {
  const json* const found = Find(key);
  if (found == nullptr) return;
  if (!found->is_string() ||
      std::find(choices.begin(), choices.end(), *found) == choices.end()) {
    return Wanted(key, absl::StrCat("one of ", absl::StrJoin(choices, ", ")));
  }
  *value = *found;
}

void ConfigReader::Check(const char* key, bool right,
                         const std::string& wanted) {
  if (status_.ok() && !right) Wanted(key, wanted);
}

}  // namespace mir::models
