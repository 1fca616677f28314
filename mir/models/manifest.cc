#include "mir/models/manifest.h"

#include <ATen/core/Tensor.h>

#include "mir/models/identity_grid.h"

namespace mir::models {
namespace {

void Append(const torch::nn::Module& module, const std::string& prefix,
            std::vector<ManifestEntry>& entries) {
  const auto append = [&](const std::string& name, const at::Tensor& tensor,
                          EntryKind kind) {
    if (!tensor.defined()) return;  // As None in Python: not in a state_dict.
    entries.push_back(
        {prefix + name, tensor.scalar_type(), tensor.sizes().vec(), kind});
  };
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    append(item.key(), item.value(), EntryKind::kParameter);
  }
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    append(item.key(), item.value(), EntryKind::kBuffer);
  }
  if (const auto* grid = dynamic_cast<const IdentityGrid*>(&module)) {
    entries.push_back({prefix + IdentityGrid::kKey, at::kFloat, grid->Shape(),
                       EntryKind::kDerived});
  }
  for (const auto& child : module.named_children()) {
    Append(*child.value(), prefix + child.key() + ".", entries);
  }
}

}  // namespace

std::vector<ManifestEntry> Manifest(const torch::nn::Module& module) {
  std::vector<ManifestEntry> entries;
  Append(module, "", entries);
  return entries;
}

}  // namespace mir::models
