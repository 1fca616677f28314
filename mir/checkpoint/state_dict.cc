#include "mir/checkpoint/state_dict.h"

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "mir/base/status_macros.h"

namespace mir::checkpoint {
namespace {

constexpr absl::string_view kNames[] = {"state_dict", "model_state_dict",
                                        "model_state"};
constexpr absl::string_view kExtraState = "_extra_state";

// Python's `_metadata`: {module: {"version": number}}.
std::vector<std::pair<std::string, int64_t>> Versions(const Dict& dict) {
  std::vector<std::pair<std::string, int64_t>> versions;
  const Value* metadata = dict.attributes().Find("_metadata");
  if (metadata == nullptr || metadata->dict() == nullptr) return versions;
  for (const auto& [module, description] : metadata->dict()->entries()) {
    const Value* version = description.Find("version");
    if (module.string() != nullptr && version != nullptr &&
        version->integer().has_value()) {
      versions.emplace_back(*module.string(), *version->integer());
    }
  }
  return versions;
}

absl::StatusOr<StateDict> FromDict(const Dict& dict, absl::string_view where) {
  StateDict state;
  for (const auto& [key, value] : dict.entries()) {
    const std::string* name = key.string();
    if (name != nullptr && value.tensor() != nullptr) {
      state.entries.emplace_back(*name, *value.tensor());
    } else if (name == nullptr || !absl::EndsWith(*name, kExtraState)) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, " holds no weights: its entry ",
          name == nullptr ? key.Describe() : absl::StrCat("'", *name, "'"),
          " is ", value.Describe(),
          ", not a tensor (its keys: ", dict.DescribeKeys(), ")"));
    }
  }
  if (state.entries.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, " holds no weights (its keys: ", dict.DescribeKeys(), ")"));
  }
  state.versions = Versions(dict);
  return state;
}

std::string StripName(absl::string_view name) {
  std::vector<absl::string_view> parts = absl::StrSplit(name, '.');
  std::vector<absl::string_view> kept;
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool last = i + 1 == parts.size();
    if (!last && parts[i] == "_orig_mod") continue;
    if (!last && kept.empty() && parts[i] == "module") continue;
    kept.push_back(parts[i]);
  }
  return absl::StrJoin(kept, ".");
}

// The name of a module, which may be all prefix: "module" is "" without it.
std::string StripModuleName(absl::string_view name) {
  std::string stripped = StripName(absl::StrCat(name, "."));
  if (!stripped.empty()) stripped.pop_back();
  return stripped;
}

}  // namespace

const at::Tensor* StateDict::Find(absl::string_view name) const {
  for (const auto& [key, tensor] : entries) {
    if (key == name) return &tensor;
  }
  return nullptr;
}

std::string WeightsKey(const Value& checkpoint) {
  for (const absl::string_view name : kNames) {
    const Value* value = checkpoint.Find(name);
    if (value != nullptr && value->dict() != nullptr) return std::string(name);
  }
  return "";
}

absl::StatusOr<StateDict> FindStateDict(const Value& checkpoint) {
  if (checkpoint.dict() == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("the checkpoint is ", checkpoint.Describe(),
                     " where a dict with weights is wanted"));
  }
  if (const std::string key = WeightsKey(checkpoint); !key.empty()) {
    return FromDict(*checkpoint.Find(key)->dict(), absl::StrCat("'", key, "'"));
  }
  return FromDict(*checkpoint.dict(),
                  "the checkpoint, which has no 'state_dict', "
                  "'model_state_dict' or 'model_state',");
}

absl::StatusOr<StateDict> StripModulePrefix(const StateDict& state) {
  StateDict stripped;
  absl::flat_hash_set<std::string> names;
  for (const auto& [name, tensor] : state.entries) {
    std::string without = StripName(name);
    if (!names.insert(without).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("two names become '", without,
                       "' without their prefixes, one of them '", name, "'"));
    }
    stripped.entries.emplace_back(std::move(without), tensor);
  }
  absl::flat_hash_set<std::string> modules;
  // The wrapped module comes after its wrappers, whose versions say nothing.
  for (auto entry = state.versions.rbegin(); entry != state.versions.rend();
       ++entry) {
    std::string without = StripModuleName(entry->first);
    if (modules.insert(without).second) {
      stripped.versions.emplace(stripped.versions.begin(), std::move(without),
                                entry->second);
    }
  }
  return stripped;
}

Value ToValue(const StateDict& state) {
  Dict dict(/*ordered=*/true);
  for (const auto& [name, tensor] : state.entries) dict.Set(name, tensor);
  if (!state.versions.empty()) {
    Dict metadata(/*ordered=*/true);
    for (const auto& [module, version] : state.versions) {
      Dict description;
      description.Set("version", version);
      metadata.Set(module, std::move(description));
    }
    Dict attributes;
    attributes.Set("_metadata", std::move(metadata));
    dict.set_attributes(std::move(attributes));
  }
  return dict;
}

}  // namespace mir::checkpoint
