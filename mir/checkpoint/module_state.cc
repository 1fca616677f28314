#include "mir/checkpoint/module_state.h"

#include <torch/nn/module.h>

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "mir/base/catch_torch.h"
#include "mir/base/status_macros.h"

namespace mir::checkpoint {
namespace {

constexpr absl::string_view kTracked = "num_batches_tracked";
// From this version on batch normalisation counts its batches.
constexpr int64_t kVersionThatTracks = 2;

void Collect(const torch::nn::Module& module, const std::string& prefix,
             StateDict* state) {
  bool tracks = false;
  for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
    if (!parameter.value().defined()) continue;
    state->entries.emplace_back(prefix + parameter.key(),
                                parameter.value().detach());
  }
  for (const auto& buffer : module.named_buffers(/*recurse=*/false)) {
    if (!buffer.value().defined()) continue;
    tracks |= buffer.key() == kTracked;
    state->entries.emplace_back(prefix + buffer.key(), buffer.value().detach());
  }
  state->versions.emplace_back(std::string(absl::StripSuffix(prefix, ".")),
                               tracks ? kVersionThatTracks : 1);
  for (const auto& child : module.named_children()) {
    Collect(*child.value(), absl::StrCat(prefix, child.key(), "."), state);
  }
}

bool IsGrid(absl::string_view name) {
  return name == "grid" || absl::EndsWith(name, ".grid");
}

std::string Shape(const at::Tensor& tensor) {
  return absl::StrCat("[", absl::StrJoin(tensor.sizes(), ", "), "]");
}

bool HasWrapperPrefix(absl::string_view name) {
  return absl::StartsWith(name, "module.") ||
         absl::StrContains(absl::StrCat(".", name), "._orig_mod.");
}

// Whether weights of this version may lack the count.
bool MayBeMissing(const std::string& name, const StateDict& state) {
  absl::string_view module = name;
  if (!absl::ConsumeSuffix(&module, kTracked)) return false;
  absl::ConsumeSuffix(&module, ".");
  for (const auto& [of, version] : state.versions) {
    if (of == module) return version < kVersionThatTracks;
  }
  return true;  // From before there were versions.
}

absl::Status Refusal(const LoadReport& report, const StateDict& state) {
  std::string message =
      absl::StrCat("the weights do not fit the module:\n", report.Describe());
  for (const auto& [name, tensor] : state.entries) {
    if (HasWrapperPrefix(name)) {
      absl::StrAppend(&message, "  names such as '", name,
                      "' are of a wrapped module; StripModulePrefix removes "
                      "the prefix\n");
      break;
    }
  }
  message.pop_back();
  return absl::InvalidArgumentError(message);
}

}  // namespace

StateDict ModuleState(const torch::nn::Module& module) {
  StateDict state;
  Collect(module, "", &state);
  return state;
}

const torch::nn::Module& UnwrapModel(const torch::nn::Module& module) {
  const auto& children = module.named_children();
  if (children.size() != 1 || children[0].key() != "module" ||
      !module.named_parameters(/*recurse=*/false).is_empty() ||
      !module.named_buffers(/*recurse=*/false).is_empty()) {
    return module;
  }
  return UnwrapModel(*children[0].value());
}

torch::nn::Module& UnwrapModel(torch::nn::Module& module) {
  return const_cast<torch::nn::Module&>(
      UnwrapModel(static_cast<const torch::nn::Module&>(module)));
}

StateDict StateDictForSaving(const torch::nn::Module& module) {
  return ModuleState(UnwrapModel(module));
}

std::string LoadReport::Describe() const {
  std::string text;
  const auto add = [&](absl::string_view what,
                       const std::vector<std::string>& names,
                       absl::string_view separator) {
    if (names.empty()) return;
    absl::StrAppend(&text, "  ", names.size(), " ", what, ": ",
                    absl::StrJoin(names, separator), "\n");
  };
  if (!loaded.empty()) {
    absl::StrAppend(&text, "  ", loaded.size(), " fit\n");
  }
  add("missing in the weights", missing, ", ");
  add("unexpected in the weights", unexpected, ", ");
  add("of another shape", mismatched, "; ");
  add("grids ignored", ignored_grids, ", ");
  return text;
}

namespace {

struct Comparison {
  LoadReport report;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // To, from.
};

Comparison Compare(const torch::nn::Module& module, const StateDict& state) {
  const StateDict own = ModuleState(module);
  absl::flat_hash_map<absl::string_view, const at::Tensor*> given;
  for (const auto& [name, tensor] : state.entries) given[name] = &tensor;

  Comparison comparison;
  LoadReport& report = comparison.report;
  absl::flat_hash_map<absl::string_view, bool> wanted;
  for (const auto& [name, target] : own.entries) {
    wanted[name] = true;
    const auto found = given.find(name);
    if (found == given.end()) {
      if (!MayBeMissing(name, state)) report.missing.push_back(name);
      continue;
    }
    at::Tensor source = *found->second;
    if (target.dim() == 0 && source.dim() == 1 && source.numel() == 1) {
      source = source[0];
    }
    if (source.sizes() != target.sizes()) {
      report.mismatched.push_back(
          absl::StrCat(name, ": ", Shape(source), " in the weights, ",
                       Shape(target), " in the module"));
      continue;
    }
    report.loaded.push_back(name);
    comparison.copies.emplace_back(target, std::move(source));
  }
  for (const auto& [name, tensor] : state.entries) {
    if (wanted.contains(name)) continue;
    (IsGrid(name) ? report.ignored_grids : report.unexpected).push_back(name);
  }
  return comparison;
}

}  // namespace

LoadReport CompareStateDict(const torch::nn::Module& module,
                            const StateDict& state) {
  return Compare(module, state).report;
}

absl::StatusOr<LoadReport> LoadStateDict(torch::nn::Module& module,
                                         const StateDict& state, bool strict) {
  Comparison comparison = Compare(module, state);
  LoadReport& report = comparison.report;
  if (report.loaded.empty() || (strict && !report.fits())) {
    return Refusal(report, state);
  }
  MIR_RETURN_IF_ERROR(CatchTorch([&] {
    const at::NoGradGuard no_gradients;
    for (auto& [target, source] : comparison.copies) target.copy_(source);
    return absl::OkStatus();
  }));
  return std::move(report);
}

absl::StatusOr<LoadReport> LoadPartialWeights(torch::nn::Module& module,
                                              const StateDict& state) {
  MIR_ASSIGN_OR_RETURN(const StateDict stripped, StripModulePrefix(state));
  return LoadStateDict(UnwrapModel(module), stripped, /*strict=*/false);
}

}  // namespace mir::checkpoint
