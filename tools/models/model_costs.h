#ifndef MIR_TOOLS_MODELS_MODEL_COSTS_H_
#define MIR_TOOLS_MODELS_MODEL_COSTS_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "mir/precision/precision.h"

namespace mir::tools {

// The parameters of a model, counted without giving them memory.
// INVALID_ARGUMENT where it cannot be built from the configuration.
absl::StatusOr<int64_t> CountParameters(absl::string_view model,
                                        const nlohmann::json& config);

// The bytes of tensors that a training step needs for one pair, in two parts.
struct StepMemory {
  // Computed: weights, gradients and AdamW's three averages in float32, and in
  // 16 bits a copy of the weights.
  double weights = 0;
  // Measured: the largest sum of all other tensors at one time, forward and
  // backward, on the CPU, of the network alone (a loss adds a few volumes).
  double activations = 0;
};

// Runs one forward and backward pass at the spatial sizes `sizes`, multiples of
// the model's SizeMultiple(). Scratch memory of oneDNN is not seen.
//
// INVALID_ARGUMENT where the model cannot be built or does not take `sizes`.
absl::StatusOr<StepMemory> MeasureStep(absl::string_view model,
                                       const nlohmann::json& config,
                                       precision::Precision precision,
                                       const std::vector<int64_t>& sizes);

}  // namespace mir::tools

#endif  // MIR_TOOLS_MODELS_MODEL_COSTS_H_
