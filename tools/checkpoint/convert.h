#ifndef MIR_TOOLS_CHECKPOINT_CONVERT_H_
#define MIR_TOOLS_CHECKPOINT_CONVERT_H_

#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tools/checkpoint/weights_file.h"

namespace mir::tools {

struct ConvertOptions {
  // What floating weights become; empty: what they are.
  std::optional<at::ScalarType> dtype;
  // The model whose identity grids are added, as MIR's strict loading wants
  // them; null: none are.
  const torch::nn::Module* for_mir = nullptr;
};

// Writes the weights of `file` to `out`, whose ending gives the format:
// .safetensors (the weights alone), or .pth, .pt, .pth.tar (with all other
// entries of the file, or the weights at the top where it has none). The report
// says what was left out. Errors carry exit code 2 for an ending that is
// unknown and 3 for an `out` that cannot be written.
absl::StatusOr<Report> Convert(const WeightsFile& file, const std::string& out,
                               const ConvertOptions& options);

// The same in one line.
std::string ConvertText(const Report& report);

}  // namespace mir::tools

#endif  // MIR_TOOLS_CHECKPOINT_CONVERT_H_
