#ifndef MIR_PRECISION_PRECISION_H_
#define MIR_PRECISION_PRECISION_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace mir::precision {

// The switch that training and inference take: what convolutions and matrix
// products compute in. Weights, losses and geometry stay in float32 with each.
enum class Precision {
  kFloat32,   // "fp32"
  kFloat16,   // "fp16": needs a gradient scaler; GPUs only.
  kBFloat16,  // "bf16": the range of float32 at 8 bits of precision.
};

// The precision of a name: "fp32", "fp16" or "bf16".
//
// Any other name is INVALID_ARGUMENT; the message lists the three and suggests
// the nearest.
absl::StatusOr<Precision> ParsePrecision(absl::string_view name);

// The name that ParsePrecision takes.
absl::string_view PrecisionName(Precision precision);

}  // namespace mir::precision

#endif  // MIR_PRECISION_PRECISION_H_
