#ifndef MIR_TRAINING_OPTIONS_H_
#define MIR_TRAINING_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace mir::training {

// Where pairs of images come from; exactly one source is chosen.
struct DataOptions {
  std::string list;   // A dataset.json in the Learn2Reg layout, or empty.
  std::string atlas;  // A NIfTI image to deform at random, or empty.
  std::string atlas_labels;  // Its labels.
  double spacing_mm = 0;     // Resample to this in RAS; 0 keeps the grid.
  std::vector<int64_t> size = {32, 32, 32};  // Of synthetic volumes.
  int64_t pairs_per_epoch = 64;              // Of synthetic and atlas sources.
  int64_t validation_pairs = 8;              // Likewise.
  std::string intensity = "minmax";
  int64_t loader_threads = 2;
};

// One training run, as the user asks for it. Library users fill it themselves;
// `train_<model>` does so from its flags.
struct TrainOptions {
  DataOptions data;

  int64_t steps = 0;       // Optimizer steps; 0: `epochs` decides.
  int64_t epochs = 0;      // Passes over the source; used where steps is 0.
  int64_t batch_size = 1;  // Pairs per process and micro-step.
  int64_t accumulate = 1;  // Micro-steps per optimizer step.

  std::string similarity = "ncc";
  double similarity_weight = 1;
  std::string regularizer = "l2";
  double regularizer_weight = 1;
  // Of a model that weighs the regularizer by voxel, and of no other: the prior
  // of its weights, "beta:ALPHA" or "gaussian:INVERSE_VARIANCE" (see
  // losses/factory.h). The regularizer is then l1, l2 or tv.
  std::string prior;
  // Of a hypernetwork, in validation: as many as it takes, from 0 to 1. Empty:
  // its own. Training steps draw them at random.
  std::vector<double> hyperparameters;
  std::string optimizer = "adam";  // adam, adamw or sgd.
  bool amsgrad = false;            // Of adam and adamw.
  // Negative: the optimizer's own, 0.01 of adamw and 0 of the others.
  double weight_decay = -1;
  double learning_rate = 1e-4;
  std::string learning_rate_schedule = "constant";  // See schedule.h.

  // Batch normalisation over the batches of all processes.
  bool sync_batchnorm = false;
  // In which precision gradients travel between them: none (their own), bf16
  // or fp16.
  std::string gradient_compression = "none";

  std::string precision = "fp32";         // fp32, fp16 or bf16.
  std::string device = "auto";            // cpu, cuda or auto.
  std::string warp_convention = "exact";  // exact or mir.
  int64_t seed = 0;
  int64_t threads = 0;  // Of LibTorch on the CPU; 0: OMP_NUM_THREADS decides.

  // Steps between validations; 0 for none between. A run also validates before
  // its first step and at its end.
  int64_t validate_every = 50;
  int64_t skip_nonfinite = 0;  // Steps with a NaN or infinite loss to skip.

  std::string out;      // The run's folder.
  bool resume = false;  // Go on from its latest checkpoint.
};

// INVALID_ARGUMENT names the first option that cannot be, with what was wanted.
absl::Status CheckOptions(const TrainOptions& options);

}  // namespace mir::training

#endif  // MIR_TRAINING_OPTIONS_H_
