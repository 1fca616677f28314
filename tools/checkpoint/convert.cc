#include "tools/checkpoint/convert.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/stack.h>

#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "mir/base/catch_torch.h"
#include "mir/base/exit_status.h"
#include "mir/base/status_macros.h"
#include "mir/checkpoint/archive.h"
#include "mir/checkpoint/safetensors.h"
#include "mir/checkpoint/state_dict.h"
#include "mir/checkpoint/value.h"
#include "mir/launch/exit_codes.h"
#include "mir/models/manifest.h"

namespace mir::tools {
namespace {

using checkpoint::StateDict;
using checkpoint::Value;

// Each voxel's coordinates: [1, nd, ...] of these sizes, channel k along axis
// k.
at::Tensor IdentityGrid(const std::vector<int64_t>& shape) {
  std::vector<at::Tensor> axes;
  const at::IntArrayRef sizes = at::IntArrayRef(shape).slice(2);
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    std::vector<int64_t> along(sizes.size(), 1);
    along[axis] = sizes[axis];
    axes.push_back(
        at::arange(sizes[axis], at::kFloat).view(along).expand(sizes));
  }
  return at::stack(axes).unsqueeze(0);
}

// The weights with MIR's grids, in the order of MIR's state_dict; what the
// model does not list follows.
StateDict WithGrids(const StateDict& state, const torch::nn::Module& model,
                    Report* added) {
  StateDict with;
  with.versions = state.versions;
  std::set<std::string> placed;
  for (const models::ManifestEntry& entry : models::Manifest(model)) {
    if (entry.kind == models::EntryKind::kDerived) {
      with.entries.emplace_back(entry.name, IdentityGrid(entry.shape));
      added->push_back(entry.name);
    } else if (const at::Tensor* const tensor = state.Find(entry.name)) {
      with.entries.emplace_back(entry.name, *tensor);
    } else {
      continue;
    }
    placed.insert(entry.name);
  }
  for (const auto& [name, tensor] : state.entries) {
    if (placed.count(name) == 0) with.entries.emplace_back(name, tensor);
  }
  return with;
}

bool IsSafetensors(const std::string& path) {
  return absl::EndsWith(path, ".safetensors");
}

// The whole content with its weights replaced.
Value WithWeights(const WeightsFile& file, const StateDict& state) {
  if (file.key.empty()) return checkpoint::ToValue(state);
  Value content = file.content;
  content.mutable_dict()->Set(file.key, checkpoint::ToValue(state));
  return content;
}

// What a safetensors file, or a module's entries that are no tensors, lack.
Report LeftOut(const WeightsFile& file, bool weights_alone) {
  Report left_out = Report::array();
  const checkpoint::Dict& content = *file.content.dict();
  if (weights_alone && !file.key.empty()) {
    for (const auto& [key, value] : content.entries()) {
      if (key.string() != nullptr && *key.string() == file.key) continue;
      left_out.push_back(key.string() != nullptr ? *key.string()
                                                 : ShortText(key));
    }
  }
  const checkpoint::Dict& weights =
      file.key.empty() ? content : *file.content.Find(file.key)->dict();
  for (const auto& [key, value] : weights.entries()) {
    if (value.tensor() == nullptr) left_out.push_back(ShortText(key));
  }
  return left_out;
}

// MIR's warp is its own; what it costs depends on the training.
Report Warnings(const WeightsFile& file, const ConvertOptions& options) {
  Report warnings = Report::array();
  const Value* const about = file.content.Find("mir");
  const Value* const convention =
      about == nullptr ? nullptr : about->Find("warp_convention");
  if (options.for_mir != nullptr && convention != nullptr &&
      convention->string() != nullptr && *convention->string() == "exact") {
    warnings.push_back(
        "it was trained with the exact warp, MIR's differs by up to half a "
        "voxel; train with --warp-convention mir for use in MIR");
  }
  return warnings;
}

}  // namespace

absl::StatusOr<Report> Convert(const WeightsFile& file, const std::string& out,
                               const ConvertOptions& options) {
  const bool safetensors = IsSafetensors(out);
  if (!safetensors && !absl::EndsWith(out, ".pth") &&
      !absl::EndsWith(out, ".pt") && !absl::EndsWith(out, ".pth.tar")) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ending of ", out,
                     " gives the format: .safetensors, .pth, .pt or .pth.tar"));
  }
  Report grids = Report::array();
  uint64_t bytes = 0;
  StateDict state = file.state;
  MIR_RETURN_IF_ERROR(AtFile(file.path, CatchTorch([&] {
                               if (options.dtype.has_value()) {
                                 for (auto& [name, tensor] : state.entries) {
                                   if (tensor.is_floating_point())
                                     tensor = tensor.to(*options.dtype);
                                 }
                               }
                               if (options.for_mir != nullptr) {
                                 state =
                                     WithGrids(state, *options.for_mir, &grids);
                               }
                               for (const auto& [name, tensor] : state.entries)
                                 bytes += tensor.nbytes();
                               return absl::OkStatus();
                             })));
  const absl::Status written =
      safetensors ? checkpoint::WriteSafetensors(
                        out, {state.entries, {{"format", "pt"}}})
                  : checkpoint::WriteCheckpoint(out, WithWeights(file, state));
  MIR_RETURN_IF_ERROR(WithExitCode(written, absl::IsInvalidArgument(written)
                                                ? launch::kCheckpoint
                                                : launch::kEnvironment));
  return Report{{"in", file.path},
                {"out", out},
                {"tensors", state.entries.size()},
                {"bytes", bytes},
                {"grids", std::move(grids)},
                {"left_out", LeftOut(file, safetensors)},
                {"warnings", Warnings(file, options)}};
}

std::string ConvertText(const Report& report) {
  std::string text = absl::StrCat(report["out"].get<std::string>(), ": ",
                                  report["tensors"].dump(), " tensors, ",
                                  SizeText(report["bytes"].get<uint64_t>()));
  if (!report["grids"].empty()) {
    absl::StrAppend(&text, ", of them ", report["grids"].size(),
                    " grids for MIR");
  }
  if (!report["left_out"].empty()) {
    absl::StrAppend(&text, "; without ",
                    absl::StrJoin(report["left_out"], ", ",
                                  [](std::string* name, const Report& entry) {
                                    name->append(absl::Utf8SafeCHexEscape(
                                        entry.get<std::string>()));
                                  }));
  }
  return text;
}

}  // namespace mir::tools
