#ifndef MIR_MODELS_MANIFEST_H_
#define MIR_MODELS_MANIFEST_H_

#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

#include <string>
#include <vector>

namespace mir::models {

enum class EntryKind {
  kParameter,
  kBuffer,
  kDerived,  // In MIR's state_dict, but computed here: an IdentityGrid's.
};

// One entry of a state_dict, without its value.
struct ManifestEntry {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  EntryKind kind;
};

// The layout of MIR's state_dict for `module`: entries in Python's order (of
// each module its parameters, its buffers, then its submodules, as they were
// registered). Identity grids are among them, though no memory is.
std::vector<ManifestEntry> Manifest(const torch::nn::Module& module);

}  // namespace mir::models

#endif  // MIR_MODELS_MANIFEST_H_
