#ifndef MIR_TRAINING_TRAINER_H_
#define MIR_TRAINING_TRAINER_H_

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "mir/data/source.h"
#include "mir/distributed/init.h"
#include "mir/launch/status_line.h"
#include "mir/models/registration_model.h"
#include "mir/training/options.h"

namespace mir::training {

// A model to train, and what its checkpoints say of it.
struct ModelChoice {
  std::string name;              // As models.json lists it.
  nlohmann::json configuration;  // What `factory` takes.
  models::ModelFactory factory;
};

// What a run needs besides its options.
struct TrainEnvironment {
  distributed::Context context;
  std::shared_ptr<const data::PairSource> training;
  std::shared_ptr<const data::PairSource> validation;  // May be null.
  std::vector<std::string> notes;  // Of the data, for the user.
  std::function<bool()> stop_requested = [] { return false; };
  const launch::StatusWriter* status = nullptr;  // May be null.
  std::map<std::string, std::string> recorded_flags;
  std::string run_id;  // The launcher's; written to config.json where it is.
};

// Runs a training from its first or its resumed step to its end: every rank
// calls it with the same arguments but `context`.
//
// Writes the run's folder (rank 0 alone), validates before the first step,
// every `validate_every` steps and at the end, and saves with each validation.
//
// Errors carry an exit code: 2 arguments, 3 a folder that cannot be written, 10
// data, 11 a loss that is not
// finite, 12 a checkpoint that cannot be read or does not fit, 20 a peer that
// is gone, 75 stopped on request after saving.
absl::Status Train(const TrainOptions& options, const ModelChoice& choice,
                   const TrainEnvironment& environment);

}  // namespace mir::training

#endif  // MIR_TRAINING_TRAINER_H_
