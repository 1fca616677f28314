#ifndef MIR_TRAINING_LEARNER_H_
#define MIR_TRAINING_LEARNER_H_

#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "mir/data/pair.h"
#include "mir/distributed/ddp.h"
#include "mir/distributed/init.h"
#include "mir/models/registration_model.h"
#include "mir/precision/grad_scaler.h"
#include "mir/precision/precision.h"
#include "mir/training/objective.h"
#include "mir/training/options.h"

namespace mir::training {

// What came of one optimizer step, the same on every rank.
struct StepOutcome {
  double loss = 0;  // Means over micro-steps and ranks.
  double similarity = 0;
  double regularizer = 0;
  double prior = 0;
  bool finite = true;           // No loss or gradient was NaN or infinite.
  bool updated = true;          // False: the step was skipped.
  bool stop_requested = false;  // Some rank was asked to stop.
};

// The optimizer that `options` name, over `parameters`: adam (Kingma and Ba,
// 2015), adamw (Loshchilov and Hutter, 2019) or sgd, else as PyTorch's
// defaults.
std::unique_ptr<torch::optim::Optimizer> MakeOptimizer(
    const TrainOptions& options, std::vector<at::Tensor> parameters);

// Whether `model` can be trained with `options`: INVALID_ARGUMENT where it has
// not what one of them is about. Gives a hypernetwork its hyperparameters.
absl::Status FitToOptions(models::RegistrationModel& model,
                          const TrainOptions& options);

// One model being trained: forward, loss, backward, gradients averaged over
// ranks, update. Weights stay in their dtype; under fp16 or bf16 the network
// alone runs in 16 bits.
//
// A hypernetwork gets random hyperparameters for each micro-step of each rank,
// uniform from 0 to 1, from LibTorch's generator; after a step its own are set
// again.
//
// With W ranks, a batch of B and A micro-steps a step is, up to rounding, that
// of one process with a batch of W * A * B, where the model is no hypernetwork.
// Every rank must make the same
// calls. Not thread-safe.
class Learner {
 public:
  // `model` lies on the context's device; its weights and buffers become those
  // of rank 0. Throws c10::Error where ranks hold different models.
  Learner(std::shared_ptr<models::RegistrationModel> model,
          const Objective& objective, const TrainOptions& options,
          precision::Precision precision, const distributed::Context& context);

  // Takes one step on `micro_batches`, one backward pass each. `stop_wanted`
  // says that this rank was asked to stop; all learn of it in the outcome.
  //
  // `before_exchange` is called on each rank before it waits for the others.
  //
  // A loss or gradient that is not finite leaves the weights alone on all
  // ranks. UNAVAILABLE where a peer is gone before the update; what LibTorch
  // throws passes through, also where a peer goes during the backward pass.
  absl::StatusOr<StepOutcome> Step(
      const std::vector<data::Batch>& micro_batches, bool stop_wanted,
      const std::function<void()>& before_exchange = [] {});

  models::RegistrationModel& model() { return *model_; }
  torch::optim::Optimizer& optimizer() { return *optimizer_; }
  precision::GradScaler& scaler() { return scaler_; }

 private:
  const std::shared_ptr<models::RegistrationModel> model_;
  const Objective objective_;
  const precision::Precision precision_;
  const distributed::Context context_;
  const std::unique_ptr<torch::optim::Optimizer> optimizer_;
  precision::GradScaler scaler_;
  distributed::DistributedModel distributed_;
};

}  // namespace mir::training

#endif  // MIR_TRAINING_LEARNER_H_
