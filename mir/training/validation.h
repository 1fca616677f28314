#ifndef MIR_TRAINING_VALIDATION_H_
#define MIR_TRAINING_VALIDATION_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "mir/data/source.h"
#include "mir/distributed/init.h"
#include "mir/models/registration_model.h"
#include "mir/precision/precision.h"
#include "mir/training/objective.h"

namespace mir::training {

// How a model does on held-out pairs: means over all cases, each evaluated
// exactly once whatever the number of ranks; the same on every rank.
struct ValidationResult {
  int64_t cases = 0;
  int64_t failed = 0;  // With a field that is not finite; not in the means.
  bool interrupted = false;  // Some rank left cases out, as it was asked to.
  double loss = 0;
  double folded = 0;  // Share of voxels with |J| <= 0.
  // Mean Dice over labels and cases with the moving labels warped (nearest
  // voxel), and before any registration. Absent where the data have no labels.
  absl::optional<double> dice;
  absl::optional<double> dice_before;
};

// Evaluates `model` on all pairs of `source`, each rank its share. `go_on` is
// asked before each of this rank's cases; where it says no, this rank leaves
// out the rest of its share, and every rank learns that it did. Errors of the
// source carry exit code 10; UNAVAILABLE where a peer is gone.
absl::StatusOr<ValidationResult> Validate(
    models::RegistrationModel& model, const data::PairSource& source,
    const Objective& objective, precision::Precision precision,
    const distributed::Context& context,
    const std::function<bool()>& go_on = [] { return true; });

}  // namespace mir::training

#endif  // MIR_TRAINING_VALIDATION_H_
