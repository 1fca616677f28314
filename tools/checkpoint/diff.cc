#include "tools/checkpoint/diff.h"

#include <ATen/core/Tensor.h>

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "mir/base/catch_torch.h"
#include "mir/base/status_macros.h"
#include "mir/checkpoint/state_dict.h"
#include "mir/checkpoint/value.h"
#include "tools/checkpoint/tensor_statistics.h"

namespace mir::tools {
namespace {

using checkpoint::Value;

// Pairs of containers that were compared already: a small file can hold lists
// that share one another, with more ways than time to go them.
using Seen = std::set<std::pair<const void*, const void*>>;

bool Same(const Value& a, const Value& b, Seen* seen);

bool SameItems(const std::vector<Value>& a, const std::vector<Value>& b,
               Seen* seen) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!Same(a[i], b[i], seen)) return false;
  }
  return true;
}

bool SameDict(const checkpoint::Dict& a, const checkpoint::Dict& b,
              Seen* seen) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* const other = b.FindKey(key);
    if (other == nullptr || !Same(value, *other, seen)) return false;
  }
  return true;
}

bool Same(const Value& a, const Value& b, Seen* seen) {
  if (a.kind() != b.kind()) return false;
  // One that differs ends the whole comparison.
  if (a.identity() != nullptr &&
      !seen->emplace(a.identity(), b.identity()).second) {
    return true;
  }
  using Kind = Value::Kind;
  switch (a.kind()) {
    case Kind::kNone:
      return true;
    case Kind::kBool:
      return a.boolean() == b.boolean();
    case Kind::kInt:
      return a.integer() == b.integer();
    case Kind::kFloat:
      // As the bits of a tensor, NaN equals itself.
      return a.number() == b.number() ||
             (*a.number() != *a.number() && *b.number() != *b.number());
    case Kind::kString:
      return *a.string() == *b.string();
    case Kind::kBytes:
      return *a.bytes() == *b.bytes();
    case Kind::kDtype:
      return a.dtype() == b.dtype();
    case Kind::kTensor:
      return a.tensor()->sizes() == b.tensor()->sizes() &&
             DifferenceOf(*a.tensor(), *b.tensor()).bit_equal;
    case Kind::kList:
    case Kind::kTuple:
      return SameItems(*a.items(), *b.items(), seen);
    case Kind::kDict:
      return SameDict(*a.dict(), *b.dict(), seen);
    case Kind::kObject:
      return a.object()->class_name == b.object()->class_name &&
             Same(a.object()->args, b.object()->args, seen) &&
             Same(a.object()->state, b.object()->state, seen);
  }
  return false;
}

// The entries beside the weights; all of them where there are no others.
Report OtherEntries(const WeightsFile& a, const WeightsFile& b) {
  Report changed = Report::array();
  if (a.key.empty() || b.key.empty()) return changed;
  const auto add = [&](const Value& key, const Value* one, const Value* other) {
    changed.push_back(
        {{"key", key.string() != nullptr ? *key.string() : ShortText(key)},
         {"a", one == nullptr ? Report(nullptr) : Report(ShortText(*one))},
         {"b",
          other == nullptr ? Report(nullptr) : Report(ShortText(*other))}});
  };
  for (const auto& [key, value] : a.content.dict()->entries()) {
    if (key.string() != nullptr && *key.string() == a.key) continue;
    const Value* const other = b.content.dict()->FindKey(key);
    Seen seen;
    if (other == nullptr || !Same(value, *other, &seen)) {
      add(key, &value, other);
    }
  }
  for (const auto& [key, value] : b.content.dict()->entries()) {
    if (key.string() != nullptr && *key.string() == b.key) continue;
    if (a.content.dict()->FindKey(key) == nullptr) add(key, nullptr, &value);
  }
  return changed;
}

Report EntryOf(const std::string& name, const at::Tensor& tensor) {
  return {{"key", name},
          {"dtype", checkpoint::DtypeName(tensor.scalar_type())},
          {"shape", tensor.sizes().vec()}};
}

}  // namespace

absl::StatusOr<Report> Diff(const WeightsFile& a, const WeightsFile& b) {
  Report only_a = Report::array();
  Report only_b = Report::array();
  Report shapes = Report::array();
  Report values = Report::array();
  Report bits = Report::array();
  Report others = Report::array();
  int64_t equal = 0;
  MIR_RETURN_IF_ERROR(AtFile(
      a.path, CatchTorch([&] {
        for (const auto& [name, tensor] : a.state.entries) {
          const at::Tensor* const other = b.state.Find(name);
          if (other == nullptr) {
            only_a.push_back(EntryOf(name, tensor));
            continue;
          }
          if (tensor.sizes() != other->sizes()) {
            shapes.push_back({{"key", name},
                              {"a", tensor.sizes().vec()},
                              {"b", other->sizes().vec()}});
            continue;
          }
          const TensorDifference difference = DifferenceOf(tensor, *other);
          if (difference.bit_equal) {
            ++equal;
            continue;
          }
          Report entry = {
              {"key", name},
              {"dtype_a", checkpoint::DtypeName(tensor.scalar_type())},
              {"dtype_b", checkpoint::DtypeName(other->scalar_type())},
              {"elements", tensor.numel()},
              {"different", difference.different},
              // JSON has no infinity.
              {"largest", difference.largest > 1e308
                              ? Report("inf")
                              : Report(difference.largest)}};
          (difference.different > 0 ? values : bits)
              .push_back(std::move(entry));
        }
        for (const auto& [name, tensor] : b.state.entries) {
          if (a.state.Find(name) == nullptr)
            only_b.push_back(EntryOf(name, tensor));
        }
        others = OtherEntries(a, b);
        return absl::OkStatus();
      })));
  const bool same = only_a.empty() && only_b.empty() && shapes.empty() &&
                    values.empty() && bits.empty() && others.empty();
  return Report{{"a", a.path},
                {"b", b.path},
                {"same", same},
                {"bit_equal", equal},
                {"only_in_a", std::move(only_a)},
                {"only_in_b", std::move(only_b)},
                {"other_shape", std::move(shapes)},
                {"other_values", std::move(values)},
                {"other_bits", std::move(bits)},
                {"other_entries", std::move(others)}};
}

std::string DiffText(const Report& report) {
  std::string text;
  const auto key = [](const Report& entry) {
    return absl::Utf8SafeCHexEscape(entry["key"].get<std::string>());
  };
  for (const auto& [list, mark] :
       {std::pair("only_in_a", "<"), std::pair("only_in_b", ">")}) {
    for (const Report& entry : report[list]) {
      absl::StrAppend(&text, mark, " ", key(entry), "  ",
                      entry["dtype"].get<std::string>(), " ",
                      entry["shape"].dump(), "\n");
    }
  }
  for (const Report& entry : report["other_shape"]) {
    absl::StrAppend(&text, "! ", key(entry), "  shape ", entry["a"].dump(),
                    " and ", entry["b"].dump(), "\n");
  }
  for (const Report& entry : report["other_values"]) {
    const Report& largest = entry["largest"];
    absl::StrAppend(
        &text, "! ", key(entry), "  ", entry["different"].dump(), " of ",
        entry["elements"].dump(), " elements differ, at most by ",
        largest.is_string() ? largest.get<std::string>()
                            : absl::StrFormat("%.4g", largest.get<double>()),
        "\n");
  }
  for (const Report& entry : report["other_bits"]) {
    const auto a = entry["dtype_a"].get<std::string>();
    const auto b = entry["dtype_b"].get<std::string>();
    absl::StrAppend(&text, "~ ", key(entry), "  equal values, ",
                    a == b ? "other bits" : absl::StrCat(a, " and ", b), "\n");
  }
  for (const Report& entry : report["other_entries"]) {
    const auto words = [](const Report& side) {
      return side.is_null() ? "nothing" : side.get<std::string>();
    };
    absl::StrAppend(&text, "! other entry '", key(entry),
                    "': ", words(entry["a"]), " and ", words(entry["b"]), "\n");
  }
  const size_t differing =
      report["only_in_a"].size() + report["only_in_b"].size() +
      report["other_shape"].size() + report["other_values"].size() +
      report["other_bits"].size();
  absl::StrAppend(&text, report["bit_equal"].dump(), " tensors are bit-equal, ",
                  differing, " differ\n");
  return text;
}

}  // namespace mir::tools
