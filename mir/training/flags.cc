#include "mir/training/flags.h"

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "mir/base/status_macros.h"

// Data.
ABSL_FLAG(bool, synthetic, false,
          "Train on random shapes made on the fly; so it is where no other "
          "source is given.");
ABSL_FLAG(std::string, data, "",
          "A dataset.json in the Learn2Reg layout to train on.");
ABSL_FLAG(std::string, atlas, "",
          "A NIfTI image whose randomly deformed copies are trained on.");
ABSL_FLAG(std::string, atlas_labels, "", "The labels of --atlas.");
ABSL_FLAG(double, spacing, 0,
          "Voxel size in mm to resample images to; 0 keeps their grid.");
ABSL_FLAG(std::string, size, "32,32,32",
          "Voxels of synthetic volumes, 2 or 3 numbers.");
ABSL_FLAG(int64_t, pairs_per_epoch, 64,
          "Pairs in an epoch of --synthetic and --atlas.");
ABSL_FLAG(int64_t, val_pairs, 8,
          "Held-out pairs of --synthetic and --atlas to validate on.");
ABSL_FLAG(
    std::string, intensity, "minmax",
    "How intensities become 0..1: minmax, percentile:LO,HI, window:LO,HI, "
    "scale:F or none.");
ABSL_FLAG(int64_t, loader_threads, 2, "Threads that load pairs ahead.");

// Model.
ABSL_FLAG(std::string, config, "default",
          "The model's configuration: a name, or a .json file.");
ABSL_FLAG(std::string, set, "",
          "Changes to the configuration: KEY=VALUE[;KEY=VALUE...].");

// Optimisation.
ABSL_FLAG(
    int64_t, steps, 0,
    "Optimizer steps to train for; 200 where neither --steps nor --epochs "
    "is given.");
ABSL_FLAG(int64_t, epochs, 0, "Passes over the data to train for.");
ABSL_FLAG(int64_t, batch_size, 1, "Pairs per process and forward pass.");
ABSL_FLAG(int64_t, accumulate, 1,
          "Forward and backward passes per optimizer step.");
ABSL_FLAG(std::string, optimizer, "adam", "adam, adamw or sgd.");
ABSL_FLAG(double, lr, 0,
          "Learning rate; 0 takes the model's own, or 0.001 on synthetic "
          "shapes, which are for first tries.");
ABSL_FLAG(std::string, lr_schedule, "constant",
          "How the learning rate goes: constant, poly (as in MIR: down to 0 by "
          "a power of 0.9) or cosine.");
ABSL_FLAG(bool, amsgrad, false,
          "Let adam or adamw keep the largest second moment, as MIR's training "
          "does.");
ABSL_FLAG(double, weight_decay, -1,
          "Weight decay; -1 takes the optimizer's own: 0.01 of adamw, 0 of the "
          "others.");
ABSL_FLAG(std::string, similarity, "",
          "Image loss, such as ncc, mi, mse or mir.ncc_vxm (an unknown name "
          "lists all); empty takes the model's own.");
ABSL_FLAG(double, similarity_weight, -1,
          "Weight of the image loss; -1 takes the model's own.");
ABSL_FLAG(std::string, regularizer, "",
          "Penalty on the deformation, such as l2, tv or bending; empty takes "
          "the model's own.");
ABSL_FLAG(double, regularizer_weight, -1,
          "Weight of the penalty; -1 takes the model's own.");
ABSL_FLAG(std::string, prior, "",
          "Prior of the weights, for a model that weighs the penalty by voxel: "
          "beta:ALPHA or gaussian:INVERSE_VARIANCE; empty takes the model's "
          "own.");
ABSL_FLAG(std::vector<std::string>, hyper, {},
          "Hyperparameters of a hypernetwork in validation, numbers from 0 to "
          "1: H or H1,H2; empty takes the model's own. Training draws them at "
          "random.");
ABSL_FLAG(std::string, warp_convention, "exact",
          "How images are warped: exact (a zero field is the identity), or mir "
          "(as MIR's SpatialTransformer).");

// Several processes.
ABSL_FLAG(bool, sync_batchnorm, false,
          "Let batch normalisation take its statistics over the batches of all "
          "processes, as one process with all of them would.");
ABSL_FLAG(std::string, gradient_compression, "none",
          "How gradients travel between processes: none (as they are), bf16 or "
          "fp16, at half the traffic.");

// Machine.
ABSL_FLAG(std::string, precision, "fp32", "fp32, fp16 or bf16.");
ABSL_FLAG(std::string, device, "auto",
          "cpu, cuda, or auto (cuda where there is one).");
ABSL_FLAG(int64_t, threads, 0,
          "CPU threads of this process; 0 leaves it to OMP_NUM_THREADS.");
ABSL_FLAG(int64_t, seed, 0, "Of weights, data and order.");
ABSL_FLAG(int64_t, skip_nonfinite, 0,
          "Steps whose loss is NaN or infinite to skip before giving up.");

// Run.
ABSL_FLAG(std::string, out, "",
          "Folder of the run; empty makes a new one in runs/.");
ABSL_FLAG(bool, resume, false,
          "Go on from the checkpoint in --out (runs/latest where that is "
          "empty), with the options of that run where none are given.");
ABSL_FLAG(int64_t, val_every, 50,
          "Steps between validations, each with a checkpoint; 0: at the ends "
          "only.");
ABSL_FLAG(bool, check_args, false,
          "Check arguments, data and folder, then stop.");

namespace mir::training {
namespace {

absl::StatusOr<std::vector<int64_t>> Numbers(const std::string& text) {
  std::vector<int64_t> numbers;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(part, &number)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--size wants 2 or 3 numbers such as 64,64,64, got '", text, "'"));
    }
    numbers.push_back(number);
  }
  return numbers;
}

// An option that the chosen source does not look at is a mistake, not a wish to
// ignore. Options that a resumed run recorded are not given.
absl::Status CheckSource(const CommandLine& line, const DataOptions& data) {
  struct Unused {
    const char* flag;
    const char* option;
    bool synthetic, list, atlas;  // Where it does nothing.
    const char* of;
  };
  constexpr Unused kUnused[] = {
      {"spacing", "--spacing", true, false, false, "--data and --atlas"},
      {"intensity", "--intensity", true, false, false, "--data and --atlas"},
      {"size", "--size", false, true, true, "synthetic shapes"},
      {"pairs_per_epoch", "--pairs-per-epoch", false, true, false,
       "synthetic shapes and --atlas"},
      {"val_pairs", "--val-pairs", false, true, false,
       "synthetic shapes and --atlas"},
  };
  const bool list = !data.list.empty();
  const bool atlas = !data.atlas.empty();
  for (const Unused& option : kUnused) {
    const bool unused = list    ? option.list
                        : atlas ? option.atlas
                                : option.synthetic;
    if (!unused || line.given.count(option.flag) == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        option.option, " is for ", option.of, " and does nothing with ",
        list    ? "--data"
        : atlas ? "--atlas"
                : "synthetic shapes",
        "; leave it out"));
  }
  return absl::OkStatus();
}

// A few hundred steps must show something, where models are trained for
// hundreds of thousands.
constexpr double kSyntheticLearningRate = 1e-3;

std::string Or(const std::string& given, const std::string& otherwise) {
  return given.empty() ? otherwise : given;
}

}  // namespace

absl::StatusOr<TrainCommand> TrainCommandFromFlags(
    const CommandLine& line, const models::TrainingDefaults& defaults) {
  if (!line.arguments.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", line.arguments[0],
                     "' is no option; options begin with -- (--help lists "
                     "all)"));
  }
  TrainCommand command;
  command.configuration = absl::GetFlag(FLAGS_config);
  for (const absl::string_view part :
       absl::StrSplit(absl::GetFlag(FLAGS_set), ';', absl::SkipWhitespace())) {
    command.overrides.emplace_back(part);
  }
  command.check_args = absl::GetFlag(FLAGS_check_args);

  TrainOptions& options = command.options;
  options.data.list = absl::GetFlag(FLAGS_data);
  options.data.atlas = absl::GetFlag(FLAGS_atlas);
  options.data.atlas_labels = absl::GetFlag(FLAGS_atlas_labels);
  if (absl::GetFlag(FLAGS_synthetic) &&
      !(options.data.list.empty() && options.data.atlas.empty())) {
    return absl::InvalidArgumentError(
        "--synthetic and --data or --atlas are two sources; give one");
  }
  MIR_RETURN_IF_ERROR(CheckSource(line, options.data));
  options.data.spacing_mm = absl::GetFlag(FLAGS_spacing);
  MIR_ASSIGN_OR_RETURN(options.data.size, Numbers(absl::GetFlag(FLAGS_size)));
  options.data.pairs_per_epoch = absl::GetFlag(FLAGS_pairs_per_epoch);
  options.data.validation_pairs = absl::GetFlag(FLAGS_val_pairs);
  options.data.intensity = absl::GetFlag(FLAGS_intensity);
  options.data.loader_threads = absl::GetFlag(FLAGS_loader_threads);

  options.steps = absl::GetFlag(FLAGS_steps);
  options.epochs = absl::GetFlag(FLAGS_epochs);
  if (line.given.count("epochs") > 0 && line.given.count("steps") == 0) {
    options.steps = 0;  // A resumed run may have recorded the other.
  } else if (line.given.count("steps") > 0 && line.given.count("epochs") == 0) {
    options.epochs = 0;
  } else if (options.steps == 0 && options.epochs == 0 &&
             line.given.count("steps") == 0) {
    options.steps = 200;
  }
  options.batch_size = absl::GetFlag(FLAGS_batch_size);
  options.accumulate = absl::GetFlag(FLAGS_accumulate);
  options.optimizer = absl::GetFlag(FLAGS_optimizer);
  options.learning_rate_schedule = absl::GetFlag(FLAGS_lr_schedule);
  options.amsgrad = absl::GetFlag(FLAGS_amsgrad);
  options.weight_decay = absl::GetFlag(FLAGS_weight_decay);
  options.learning_rate = absl::GetFlag(FLAGS_lr);
  if (options.learning_rate == 0) {
    const bool synthetic =
        options.data.list.empty() && options.data.atlas.empty();
    options.learning_rate =
        synthetic ? kSyntheticLearningRate : defaults.learning_rate;
  }
  options.similarity = Or(absl::GetFlag(FLAGS_similarity), defaults.similarity);
  options.regularizer =
      Or(absl::GetFlag(FLAGS_regularizer), defaults.regularizer);
  const double similarity_weight = absl::GetFlag(FLAGS_similarity_weight);
  options.similarity_weight =
      similarity_weight == -1 ? defaults.similarity_weight : similarity_weight;
  const double regularizer_weight = absl::GetFlag(FLAGS_regularizer_weight);
  options.regularizer_weight = regularizer_weight == -1
                                   ? defaults.regularizer_weight
                                   : regularizer_weight;
  options.prior = Or(absl::GetFlag(FLAGS_prior), defaults.prior);
  if (!options.prior.empty() && defaults.prior.empty()) {
    return absl::InvalidArgumentError(
        "--prior is for models that weigh the penalty by voxel, such as "
        "vfa_spr, and this one does not; leave it out");
  }
  for (const std::string& part : absl::GetFlag(FLAGS_hyper)) {
    options.hyperparameters.emplace_back();
    if (!absl::SimpleAtod(part, &options.hyperparameters.back())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--hyper wants numbers such as 0.3 or 0.3,0.5, got '", part, "'"));
    }
  }
  options.warp_convention = absl::GetFlag(FLAGS_warp_convention);

  options.sync_batchnorm = absl::GetFlag(FLAGS_sync_batchnorm);
  options.gradient_compression = absl::GetFlag(FLAGS_gradient_compression);
  options.precision = absl::GetFlag(FLAGS_precision);
  options.device = absl::GetFlag(FLAGS_device);
  options.threads = absl::GetFlag(FLAGS_threads);
  options.seed = absl::GetFlag(FLAGS_seed);
  options.skip_nonfinite = absl::GetFlag(FLAGS_skip_nonfinite);
  options.out = absl::GetFlag(FLAGS_out);
  options.resume = absl::GetFlag(FLAGS_resume);
  options.validate_every = absl::GetFlag(FLAGS_val_every);
  MIR_RETURN_IF_ERROR(CheckOptions(options));
  return command;
}

}  // namespace mir::training
