#include "tools/checkpoint/inspect.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "mir/base/catch_torch.h"
#include "mir/base/status_macros.h"
#include "mir/checkpoint/archive.h"
#include "mir/checkpoint/state_dict.h"
#include "mir/checkpoint/value.h"
#include "mir/training/json_value.h"
#include "tools/checkpoint/tensor_statistics.h"

namespace mir::tools {
namespace {

using checkpoint::Value;

// Every tensor below `value`, with the way to it: "optimizer.state.0.step".
// What stands at several places is entered once: a small file can hold lists
// that share one another, with more ways than time to go them.
void Collect(const Value& value, const std::string& name,
             std::set<const void*>* seen,
             std::vector<std::pair<std::string, at::Tensor>>* tensors) {
  const auto below = [&](const std::string& key) {
    return name.empty() ? key : absl::StrCat(name, ".", key);
  };
  if (value.tensor() != nullptr) {
    tensors->emplace_back(name, *value.tensor());
  } else if (value.identity() != nullptr &&
             !seen->insert(value.identity()).second) {
    return;
  } else if (value.items() != nullptr) {
    for (size_t i = 0; i < value.items()->size(); ++i) {
      Collect((*value.items())[i], below(absl::StrCat(i)), seen, tensors);
    }
  } else if (value.dict() != nullptr) {
    for (const auto& [key, item] : value.dict()->entries()) {
      Collect(item,
              below(key.string() != nullptr ? *key.string() : ShortText(key)),
              seen, tensors);
    }
  }
}

Report Describe(const std::string& name, const at::Tensor& tensor) {
  const TensorStatistics statistics = StatisticsOf(tensor);
  return {{"key", name},
          {"dtype", checkpoint::DtypeName(tensor.scalar_type())},
          {"shape", tensor.sizes().vec()},
          {"bytes", tensor.nbytes()},
          {"minimum", statistics.minimum},
          {"maximum", statistics.maximum},
          {"nonfinite", statistics.nonfinite}};
}

std::string NumberText(const Report& number) {
  if (number.is_null()) return "-";
  if (number.is_number_integer()) return number.dump();
  return absl::StrFormat("%.4g", number.get<double>());
}

}  // namespace

absl::StatusOr<Report> Inspect(const std::string& path,
                               const checkpoint::ReadOptions& options) {
  const absl::StatusOr<Value> content =
      checkpoint::ReadCheckpoint(path, options);
  if (!content.ok()) return AtFile(path, content.status());
  Report report = {{"file", path}};
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  const absl::StatusOr<checkpoint::StateDict> state =
      checkpoint::FindStateDict(*content);
  const std::string key = checkpoint::WeightsKey(*content);
  if (state.ok()) {
    report["weights"] = key.empty() ? Report(nullptr) : Report(key);
    tensors = state->entries;
  } else {
    report["weights"] = false;
    std::set<const void*> seen;
    Collect(*content, "", &seen, &tensors);
  }
  Report rows = Report::array();
  int64_t elements = 0;
  uint64_t bytes = 0;
  int64_t nonfinite = 0;
  MIR_RETURN_IF_ERROR(AtFile(path, CatchTorch([&] {
                               for (const auto& [name, tensor] : tensors) {
                                 rows.push_back(Describe(name, tensor));
                                 elements += tensor.numel();
                                 bytes += tensor.nbytes();
                                 nonfinite +=
                                     rows.back()["nonfinite"].get<int64_t>();
                               }
                               return absl::OkStatus();
                             })));
  report["tensors"] = std::move(rows);
  report["totals"] = {{"tensors", tensors.size()},
                      {"elements", elements},
                      {"bytes", bytes},
                      {"nonfinite", nonfinite}};
  Report others = Report::object();
  if (content->dict() != nullptr && (!state.ok() || !key.empty())) {
    for (const auto& [name, value] : content->dict()->entries()) {
      const std::string text =
          name.string() != nullptr ? *name.string() : ShortText(name);
      if (state.ok() && text == key) continue;
      // What `mir` says is short and is what one looks for.
      const bool whole = text == "mir" || value.number().has_value() ||
                         value.string() != nullptr ||
                         value.boolean().has_value() || value.is_none();
      others[text] = whole ? Report(training::JsonFromValue(value))
                           : Report(value.Describe());
    }
  }
  report["other_entries"] = std::move(others);
  return report;
}

std::string InspectText(const Report& report) {
  std::vector<std::vector<std::string>> rows = {
      {"key", "dtype", "shape", "size", "minimum", "maximum", "non-finite"}};
  for (const Report& tensor : report["tensors"]) {
    std::string shape = tensor["shape"].dump();
    rows.push_back({absl::Utf8SafeCHexEscape(tensor["key"].get<std::string>()),
                    tensor["dtype"].get<std::string>(), std::move(shape),
                    SizeText(tensor["bytes"].get<uint64_t>()),
                    NumberText(tensor["minimum"]),
                    NumberText(tensor["maximum"]), tensor["nonfinite"].dump()});
  }
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      // Words to the left, numbers to the right.
      const std::string gap(widths[i] - row[i].size(), ' ');
      absl::StrAppend(&text, i == 0 ? "" : "  ", i < 3 ? row[i] : gap,
                      i < 3 ? gap : row[i]);
    }
    text += '\n';
  }
  const Report& totals = report["totals"];
  absl::StrAppend(&text, totals["tensors"].dump(), " tensors, ",
                  totals["elements"].dump(), " elements, ",
                  SizeText(totals["bytes"].get<uint64_t>()), ", ",
                  totals["nonfinite"].dump(), " not finite");
  if (report["weights"].is_string()) {
    absl::StrAppend(&text, ", under '", report["weights"].get<std::string>(),
                    "'");
  } else if (report["weights"].is_boolean()) {
    absl::StrAppend(&text, "; they are no weights of a model");
  }
  text += '\n';
  for (const auto& [name, value] : report["other_entries"].items()) {
    absl::StrAppend(
        &text, "other entry '", absl::Utf8SafeCHexEscape(name), "': ",
        value.is_string() ? absl::Utf8SafeCHexEscape(value.get<std::string>())
                          : value.dump(-1, ' ', /*ensure_ascii=*/false,
                                       Report::error_handler_t::replace),
        "\n");
  }
  return text;
}

}  // namespace mir::tools
