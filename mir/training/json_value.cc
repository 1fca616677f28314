#include "mir/training/json_value.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace mir::training {
namespace {

using checkpoint::Dict;
using checkpoint::Value;

// A file of a kilobyte can hold a list of lists ... that share one another, and
// are endless once written out. No description has more than this.
constexpr int64_t kMostValues = 100'000;

std::string KeyText(const Value& key) {
  if (key.string() != nullptr) return *key.string();
  if (const std::optional<int64_t> number = key.integer()) {
    return absl::StrCat(*number);
  }
  return key.Describe();
}

nlohmann::json ToJson(const Value& value, int64_t* left) {
  if (--*left < 0) return value.Describe();
  switch (value.kind()) {
    case Value::Kind::kNone:
      return nullptr;
    case Value::Kind::kBool:
      return *value.boolean();
    case Value::Kind::kInt:
      return *value.integer();
    case Value::Kind::kFloat:
      return *value.number();
    case Value::Kind::kString:
      return *value.string();
    case Value::Kind::kList:
    case Value::Kind::kTuple: {
      nlohmann::json array = nlohmann::json::array();
      for (const Value& item : *value.items()) {
        array.push_back(ToJson(item, left));
      }
      return array;
    }
    case Value::Kind::kDict: {
      nlohmann::json object = nlohmann::json::object();
      for (const auto& [key, item] : value.dict()->entries()) {
        object[KeyText(key)] = ToJson(item, left);
      }
      return object;
    }
    default:
      return value.Describe();
  }
}

}  // namespace

Value ValueFromJson(const nlohmann::json& json) {
  switch (json.type()) {
    case nlohmann::json::value_t::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) {
        dict.Set(Value(key), ValueFromJson(item));
      }
      return Value(std::move(dict));
    }
    case nlohmann::json::value_t::array: {
      std::vector<Value> items;
      for (const nlohmann::json& item : json) {
        items.push_back(ValueFromJson(item));
      }
      return Value::List(std::move(items));
    }
    case nlohmann::json::value_t::string:
      return Value(json.get<std::string>());
    case nlohmann::json::value_t::boolean:
      return Value(json.get<bool>());
    case nlohmann::json::value_t::number_integer:
    case nlohmann::json::value_t::number_unsigned:
      return Value(json.get<int64_t>());
    case nlohmann::json::value_t::number_float:
      return Value(json.get<double>());
    default:
      return Value();
  }
}

nlohmann::json JsonFromValue(const Value& value) {
  int64_t left = kMostValues;
  return ToJson(value, &left);
}

}  // namespace mir::training
