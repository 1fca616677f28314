#include "mir/training/trainer.h"

#include <torch/utils.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "mir/base/catch_torch.h"
#include "mir/base/exit_status.h"
#include "mir/base/status_macros.h"
#include "mir/data/loader.h"
#include "mir/data/source.h"
#include "mir/distributed/collectives.h"
#include "mir/distributed/sampler.h"
#include "mir/launch/env.h"
#include "mir/launch/exit_codes.h"
#include "mir/launch/terminal.h"
#include "mir/precision/autocast.h"
#include "mir/precision/precision.h"
#include "mir/training/learner.h"
#include "mir/training/objective.h"
#include "mir/training/progress.h"
#include "mir/training/run_folder.h"
#include "mir/training/schedule.h"
#include "mir/training/skip_limit.h"
#include "mir/training/summary.h"
#include "mir/training/training_state.h"
#include "mir/training/validation.h"

namespace mir::training {
namespace {

// A seed of its own for each (seed, step, rank): SplitMix64's finaliser.
uint64_t StepSeed(uint64_t seed, uint64_t step, uint64_t rank) {
  uint64_t x = seed + 0x9E3779B97F4A7C15 * (step * 65'537 + rank + 1);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

std::string Percent(double share) {
  return absl::StrFormat("%.2f %%", 100 * share);
}

// One run on one rank: what the loop below moves forward.
class Run {
 public:
  Run(const TrainOptions& options, const ModelChoice& choice,
      const TrainEnvironment& environment)
      : options_(options),
        choice_(choice),
        environment_(environment),
        folder_(options.out),
        is_main_(distributed::IsMainProcess(environment.context)),
        global_batch_(options.batch_size * options.accumulate *
                      environment.context.world.size),
        skips_(options.skip_nonfinite) {}

  absl::Status Start();
  absl::Status Loop();
  absl::Status End();

 private:
  absl::Status MakeLearner();
  absl::Status MakeLoader();
  absl::StatusOr<std::vector<data::Batch>> NextMicroBatches();
  absl::Status Log(const StepOutcome& outcome, double seconds);
  double LearningRate(int64_t step) const {
    return LearningRateAt(options_.learning_rate_schedule,
                          options_.learning_rate, step, steps_);
  }
  bool IsDue(int64_t step) const;  // Of a validation.
  absl::StatusOr<bool> LacksValidation();
  absl::StatusOr<bool> ValidateAndSave();
  absl::Status Stopped();
  absl::Status Save(bool is_best);
  Description Describe() const;
  void Say(const std::string& line) {
    if (progress_ != nullptr) progress_->Say(line);
  }
  void Beat(absl::string_view phase) const {
    if (environment_.status != nullptr) {
      environment_.status->Beat(position_.step, phase);
    }
  }

  const TrainOptions& options_;
  const ModelChoice& choice_;
  const TrainEnvironment& environment_;
  const RunFolder folder_;
  std::shared_ptr<void> lock_;  // Of the folder, on the main process.
  const bool is_main_;
  const int64_t global_batch_;

  precision::Precision precision_ = precision::Precision::kFloat32;
  absl::optional<Objective> objective_;
  std::unique_ptr<Learner> learner_;
  std::unique_ptr<data::Loader> loader_;
  std::unique_ptr<Progress> progress_;  // On the main process.
  Position position_;
  int64_t steps_ = 0;
  SkipLimit skips_;
  absl::optional<ValidationResult> validation_;
  const absl::Time began_ = absl::Now();
};

absl::Status Run::MakeLearner() {
  const distributed::Context& context = environment_.context;
  MIR_ASSIGN_OR_RETURN(const precision::Precision wanted,
                       precision::ParsePrecision(options_.precision));
  std::string warning;
  absl::StatusOr<precision::Precision> runnable =
      precision::RunnablePrecision(wanted, context.device, &warning);
  if (!runnable.ok()) {
    return WithExitCode(runnable.status(), launch::kEnvironment);
  }
  precision_ = *runnable;
  if (!warning.empty()) Say(absl::StrCat("     Warning ", warning));

  MIR_ASSIGN_OR_RETURN(objective_, Objective::Make(options_));
  torch::manual_seed(static_cast<uint64_t>(options_.seed));
  MIR_ASSIGN_OR_RETURN(std::shared_ptr<models::RegistrationModel> model,
                       choice_.factory(choice_.configuration));
  MIR_RETURN_IF_ERROR(FitToOptions(*model, options_));
  model->to(context.device);
  if (options_.resume) {
    MIR_RETURN_IF_ERROR(LoadWeights(folder_.latest(), *model));
  }
  learner_ = std::make_unique<Learner>(std::move(model), *objective_, options_,
                                       precision_, context);
  position_.global_batch = global_batch_;
  if (options_.resume) {
    MIR_ASSIGN_OR_RETURN(position_, LoadTraining(folder_.latest(), *learner_));
    // A training of Python does not say.
    if (position_.global_batch != 0 &&
        position_.global_batch != global_batch_) {
      Say(absl::StrCat("     Warning the run had ", position_.global_batch,
                       " pairs per step and now has ", global_batch_,
                       "; the order of the data changes"));
    }
    position_.global_batch = global_batch_;
    Say(absl::StrCat("     Resumed at step ", position_.step));
  }
  return absl::OkStatus();
}

absl::Status Run::MakeLoader() {
  const launch::World& world = environment_.context.world;
  MIR_ASSIGN_OR_RETURN(const distributed::DistributedSampler sampler,
                       distributed::DistributedSampler::Create(
                           {.case_count = environment_.training->size(),
                            .batch_size = options_.batch_size,
                            .rank = world.rank,
                            .world_size = world.size,
                            .seed = static_cast<uint64_t>(options_.seed)}));
  steps_ = options_.steps > 0
               ? options_.steps
               : std::max<int64_t>(1, options_.epochs *
                                          environment_.training->size() /
                                          global_batch_);
  const int64_t first = position_.step * options_.accumulate;
  const int64_t last = steps_ * options_.accumulate;
  loader_ = std::make_unique<data::Loader>(
      environment_.training,
      [sampler, first, last](int64_t number) {
        std::vector<data::Position> positions;
        if (first + number >= last) return positions;
        for (const distributed::Draw& draw :
             sampler.Batch(/*epoch=*/0, first + number)) {
          positions.push_back({.epoch = draw.epoch, .index = draw.index});
        }
        return positions;
      },
      data::LoaderOptions{.threads =
                              static_cast<int>(options_.data.loader_threads)});
  return absl::OkStatus();
}

absl::Status Run::Start() {
  if (is_main_) {
    const launch::Terminal terminal =
        launch::TerminalOf(STDOUT_FILENO, launch::CurrentEnv());
    progress_ = std::make_unique<Progress>(
        Progress::Options{.terminal = terminal.is_terminal,
                          .width = terminal.columns},
        stdout);
    MIR_RETURN_IF_ERROR(folder_.Prepare(options_.resume));
    MIR_ASSIGN_OR_RETURN(lock_, folder_.Lock());
    folder_.RemoveLeftovers();
  }
  MIR_RETURN_IF_ERROR(MakeLearner());
  MIR_RETURN_IF_ERROR(MakeLoader());
  if (is_main_) {
    progress_->SetSteps(position_.step, steps_);
    if (options_.resume) {
      MIR_RETURN_IF_ERROR(folder_.TruncateMetrics(position_.step));
    }
    Description config = Describe();
    if (!environment_.run_id.empty()) config["run_id"] = environment_.run_id;
    MIR_RETURN_IF_ERROR(folder_.WriteConfig(config));
    int64_t parameters = 0;
    for (const at::Tensor& parameter : learner_->model().parameters()) {
      parameters += parameter.numel();
    }
    const launch::World& world = environment_.context.world;
    Say(absl::StrFormat(
        "       Model %s, %d parameters, %s on %d x %s", choice_.name,
        parameters, std::string(precision::PrecisionName(precision_)),
        world.size, environment_.context.device.is_cuda() ? "cuda" : "cpu"));
    for (const std::string& note : environment_.notes) {
      Say(absl::StrCat("        Note ", note));
    }
    Say(absl::StrCat("         Run ", options_.out));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<data::Batch>> Run::NextMicroBatches() {
  std::vector<data::Batch> batches;
  for (int64_t i = 0; i < options_.accumulate; ++i) {
    absl::StatusOr<absl::optional<data::Batch>> batch = loader_->Next();
    if (!batch.ok()) return WithExitCode(batch.status(), launch::kData);
    if (!batch->has_value()) {
      return absl::InternalError("the loader ended before the run");
    }
    batches.push_back(**std::move(batch));
  }
  return batches;
}

absl::Status Run::Log(const StepOutcome& outcome, double seconds) {
  if (!is_main_) return absl::OkStatus();
  progress_->Show(position_.step, outcome.loss, absl::Now());
  nlohmann::json metrics = {{"step", position_.step},
                            {"epoch", position_.epoch},
                            {"loss", outcome.loss},
                            {"similarity", outcome.similarity},
                            {"regularizer", outcome.regularizer},
                            {"lr", LearningRate(position_.step - 1)},
                            {"updated", outcome.updated},
                            {"seconds", seconds}};
  if (!options_.prior.empty()) metrics["prior"] = outcome.prior;
  return folder_.AppendMetrics(metrics);
}

absl::Status Run::Loop() {
  MIR_ASSIGN_OR_RETURN(const bool lacks_validation, LacksValidation());
  if (lacks_validation) {
    MIR_ASSIGN_OR_RETURN(const bool go_on, ValidateAndSave());
    if (!go_on) return Stopped();
  }
  while (position_.step < steps_) {
    const absl::Time began = absl::Now();
    Beat("data");
    MIR_ASSIGN_OR_RETURN(const std::vector<data::Batch> micro_batches,
                         NextMicroBatches());
    Beat("train");
    for (auto& group : learner_->optimizer().param_groups()) {
      group.options().set_lr(LearningRate(position_.step));
    }
    torch::manual_seed(StepSeed(options_.seed, position_.step,
                                environment_.context.world.rank));
    MIR_ASSIGN_OR_RETURN(
        const StepOutcome outcome,
        learner_->Step(micro_batches, environment_.stop_requested(),
                       [&] { Beat("exchange"); }));
    ++position_.step;
    position_.epoch =
        position_.step * global_batch_ / environment_.training->size();
    Beat("log");
    MIR_RETURN_IF_ERROR(
        Log(outcome, absl::ToDoubleSeconds(absl::Now() - began)));
    if (skips_.Exceeded(outcome.finite, outcome.updated,
                        learner_->scaler().enabled())) {
      return WithExitCode(
          absl::OutOfRangeError(absl::StrCat(
              "the loss is not finite at step ", position_.step,
              "; the last good state is in ", folder_.latest(),
              "; try a smaller --lr, or --skip-nonfinite N to allow N such "
              "steps")),
          launch::kNumeric);
    }
    if (outcome.stop_requested) {
      MIR_RETURN_IF_ERROR(Save(/*is_best=*/false));
      return Stopped();
    }
    if (IsDue(position_.step)) {
      MIR_ASSIGN_OR_RETURN(const bool go_on, ValidateAndSave());
      if (!go_on) return Stopped();
    }
  }
  return absl::OkStatus();
}

bool Run::IsDue(int64_t step) const {
  return step == 0 || step == steps_ ||
         (options_.validate_every > 0 && step % options_.validate_every == 0);
}

// Whether the run stands before a validation: at its beginning, or where it was
// stopped in one.
absl::StatusOr<bool> Run::LacksValidation() {
  if (!options_.resume) return true;
  if (environment_.validation == nullptr || !IsDue(position_.step))
    return false;
  double lacks = 0;
  if (is_main_) {
    MIR_ASSIGN_OR_RETURN(const std::vector<nlohmann::json> lines,
                         folder_.ReadMetrics());
    lacks = std::none_of(
        lines.begin(), lines.end(), [this](const nlohmann::json& line) {
          return line.contains("val_loss") && line["step"] == position_.step;
        });
  }
  MIR_ASSIGN_OR_RETURN(lacks,
                       distributed::AllReduceMax(environment_.context, lacks));
  return lacks > 0;
}

absl::Status Run::Stopped() {
  if (progress_ != nullptr) progress_->Finish();
  Say(absl::StrCat("     Stopped at step ", position_.step,
                   "; go on with --resume --out ", options_.out));
  return WithExitCode(absl::CancelledError("stopped on request"),
                      launch::kStopped);
}

// False where the run is to stop: a validation that was interrupted counts for
// nothing, but the state is saved.
absl::StatusOr<bool> Run::ValidateAndSave() {
  bool is_best = false;
  if (environment_.validation != nullptr) {
    Beat("validate");
    MIR_ASSIGN_OR_RETURN(
        validation_,
        Validate(learner_->model(), *environment_.validation, *objective_,
                 precision_, environment_.context, [&] {
                   Beat("validate");
                   return !environment_.stop_requested();
                 }));
    const ValidationResult& result = *validation_;
    if (result.interrupted) {
      MIR_RETURN_IF_ERROR(Save(/*is_best=*/false));
      return false;
    }
    if (result.failed > 0) {
      return WithExitCode(
          absl::OutOfRangeError(
              absl::StrCat("the model's field is not finite in ", result.failed,
                           " of ", result.cases, " validation cases at step ",
                           position_.step, "; the state before is in ",
                           folder_.latest(), "; try a smaller --lr")),
          launch::kNumeric);
    }
    nlohmann::json line = {{"step", position_.step},
                           {"val_loss", result.loss},
                           {"val_folded", result.folded},
                           {"val_cases", result.cases}};
    std::string said = absl::StrFormat("   Validated step %d: loss %.4f",
                                       position_.step, result.loss);
    if (result.dice.has_value()) {
      line["val_dice"] = *result.dice;
      line["val_dice_before"] = *result.dice_before;
      absl::StrAppendFormat(&said, ", Dice %.4f (unregistered %.4f)",
                            *result.dice, *result.dice_before);
    }
    absl::StrAppend(&said, ", folded ", Percent(result.folded));
    Say(said);
    const double score = result.dice.value_or(-result.loss);
    is_best = std::isfinite(score) &&
              (!position_.best.has_value() || score > *position_.best);
    if (is_best) position_.best = score;
    if (is_main_) MIR_RETURN_IF_ERROR(folder_.AppendMetrics(line));
  }
  MIR_RETURN_IF_ERROR(Save(is_best));
  return true;
}

absl::Status Run::Save(bool is_best) {
  Beat("save");
  if (is_main_) {
    const Description description = Describe();
    // `latest` records the best score, so the file that has it comes first.
    if (is_best) {
      MIR_RETURN_IF_ERROR(
          SaveTraining(folder_.best(), *learner_, position_, description));
    }
    MIR_RETURN_IF_ERROR(
        SaveTraining(folder_.latest(), *learner_, position_, description));
    if (environment_.status != nullptr) {
      environment_.status->Checkpoint(folder_.latest(), position_.step);
    }
  }
  return absl::OkStatus();
}

Description Run::Describe() const {
  return {{"model", choice_.name},
          {"configuration", choice_.configuration},
          {"precision", options_.precision},
          {"warp_convention", options_.warp_convention},
          {"intensity", options_.data.intensity},
          {"spacing_mm", options_.data.spacing_mm},
          {"similarity", options_.similarity},
          {"similarity_weight", options_.similarity_weight},
          {"regularizer", options_.regularizer},
          {"regularizer_weight", options_.regularizer_weight},
          {"prior", options_.prior},
          {"hyperparameters", learner_->model().hyperparameters()},
          {"learning_rate", options_.learning_rate},
          {"learning_rate_schedule", options_.learning_rate_schedule},
          {"seed", options_.seed},
          {"world_size", environment_.context.world.size},
          {"global_batch", global_batch_},
          {"steps", steps_},
          {"options", environment_.recorded_flags}};
}

absl::Status Run::End() {
  if (!is_main_) return absl::OkStatus();
  progress_->Finish();
  const data::PairSource& source = environment_.validation != nullptr
                                       ? *environment_.validation
                                       : *environment_.training;
  // The training is done and saved: a picture does not make it fail.
  if (const absl::Status drawn = CatchTorch([&] {
        return WriteSummary(folder_, learner_->model(), source, *objective_,
                            precision_, environment_.context);
      });
      !drawn.ok()) {
    Say(absl::StrCat("     Warning no summary.png: ",
                     std::string(drawn.message())));
  }
  std::string said = absl::StrFormat(
      "    Finished %d steps in %s", position_.step,
      absl::FormatDuration(absl::Ceil(absl::Now() - began_, absl::Seconds(1))));
  if (validation_.has_value() && validation_->dice.has_value()) {
    absl::StrAppendFormat(&said, "; Dice %.4f, unregistered %.4f",
                          *validation_->dice, *validation_->dice_before);
  }
  Say(said);
  return absl::OkStatus();
}

}  // namespace

absl::Status Train(const TrainOptions& options, const ModelChoice& choice,
                   const TrainEnvironment& environment) {
  MIR_RETURN_IF_ERROR(CheckOptions(options));
  Run run(options, choice, environment);
  MIR_RETURN_IF_ERROR(distributed::CatchCollective(
      environment.context, [&] { return run.Start(); }));
  // The arguments have been checked: what is wrong now is not they.
  return WithExitCode(
      distributed::CatchCollective(environment.context,
                                   [&]() -> absl::Status {
                                     MIR_RETURN_IF_ERROR(run.Loop());
                                     return run.End();
                                   }),
      launch::kOther);
}

}  // namespace mir::training
