#ifndef MIR_TRAINING_SUMMARY_H_
#define MIR_TRAINING_SUMMARY_H_

#include "absl/status/status.h"
#include "mir/data/source.h"
#include "mir/distributed/init.h"
#include "mir/models/registration_model.h"
#include "mir/precision/precision.h"
#include "mir/training/objective.h"
#include "mir/training/run_folder.h"

namespace mir::training {

// Draws summary.png of a run: its first pair of `source` fixed, moving, warped,
// their difference, the deformed grid, and the loss so far. One rank calls it.
absl::Status WriteSummary(const RunFolder& folder,
                          models::RegistrationModel& model,
                          const data::PairSource& source,
                          const Objective& objective,
                          precision::Precision precision,
                          const distributed::Context& context);

}  // namespace mir::training

#endif  // MIR_TRAINING_SUMMARY_H_
