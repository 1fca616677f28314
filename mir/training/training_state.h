#ifndef MIR_TRAINING_TRAINING_STATE_H_
#define MIR_TRAINING_TRAINING_STATE_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "mir/models/registration_model.h"
#include "mir/training/learner.h"

namespace mir::training {

// Where a run stands, beside its weights and its optimizer. There are no random
// generators to keep: every step seeds its own from (seed, step, rank), and
// data are a function of their place in the run.
struct Position {
  int64_t step = 0;   // Optimizer steps done.
  int64_t epoch = 0;  // Passes over the data completed.
  // Pairs per step, over ranks and micro-steps; 0 where a file does not say.
  int64_t global_batch = 0;
  absl::optional<double> best;  // Best validation score, greater is better.
};

// What a checkpoint says of its model under the key `mir`, for inference and
// resume: model, configuration, precision, warp_convention, intensity, ...
using Description = nlohmann::json;

// Writes one file that Python opens by torch.load(weights_only=True):
//
//   state_dict  the weights, as MIR's class of the model names them
//   optimizer   as Python's optimizer.state_dict()
//   epoch, step
//   mir         `description`, and under `training` the position and the scaler
//
// Atomic and durable: a failure leaves the file that was there. Errors carry
// exit code 12.
absl::Status SaveTraining(const std::string& path, Learner& learner,
                          const Position& position,
                          const Description& description);

// Sets the weights of `model` to those of a checkpoint, strictly. Errors carry
// exit code 12: no such file, a damaged one, one of another model, naming every
// key that does not fit, or one with weights that are not finite. `model` is
// then unchanged.
absl::Status LoadWeights(const std::string& path,
                         models::RegistrationModel& model);

// Sets optimizer and scaler of `learner`, whose weights are loaded already, and
// returns where the run stood. Errors as LoadWeights.
//
// A training of Python is taken up too: its file holds `optimizer`, may hold
// `epoch`, `step` and `scaler` (the state_dict of torch.amp.GradScaler), and
// where it has no `step` the count of Adam or AdamW stands for it.
absl::StatusOr<Position> LoadTraining(const std::string& path,
                                      Learner& learner);

// What the checkpoint says of itself; an empty object for weights of another
// origin. Errors as LoadWeights.
absl::StatusOr<Description> ReadDescription(const std::string& path);

}  // namespace mir::training

#endif  // MIR_TRAINING_TRAINING_STATE_H_
