#include "mir/training/training_state.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "mir/base/exit_status.h"
#include "mir/base/status_macros.h"
#include "mir/checkpoint/archive.h"
#include "mir/checkpoint/module_state.h"
#include "mir/checkpoint/optimizer_state.h"
#include "mir/checkpoint/state_dict.h"
#include "mir/checkpoint/value.h"
#include "mir/launch/exit_codes.h"
#include "mir/precision/grad_scaler.h"
#include "mir/training/json_value.h"

namespace mir::training {
namespace {

using checkpoint::Dict;
using checkpoint::Value;

// `status` with the file named in front and the exit code of checkpoints.
absl::Status AtFile(const std::string& path, const absl::Status& status) {
  return WithExitCode(
      absl::Status(status.code(), absl::StrCat(path, ": ", status.message())),
      launch::kCheckpoint);
}

absl::StatusOr<Value> Read(const std::string& path) {
  absl::StatusOr<Value> file = checkpoint::ReadCheckpoint(path);
  if (!file.ok()) return WithExitCode(file.status(), launch::kCheckpoint);
  return file;
}

Value ScalerValue(const precision::GradScaler& scaler) {
  const precision::GradScalerState state = scaler.state();
  Dict dict;
  dict.Set("scale", Value(state.scale));
  dict.Set("growth_factor", Value(state.growth_factor));
  dict.Set("backoff_factor", Value(state.backoff_factor));
  dict.Set("growth_interval", Value(state.growth_interval));
  dict.Set("_growth_tracker", Value(state.growth_tracker));
  return Value(std::move(dict));
}

double NumberOr(const Value& dict, const char* key, double otherwise) {
  const Value* const value = dict.Find(key);
  return value == nullptr ? otherwise : value->number().value_or(otherwise);
}

// INVALID_ARGUMENT names the first entry that holds a NaN or an infinity.
absl::Status CheckFinite(const checkpoint::StateDict& state) {
  for (const auto& [name, tensor] : state.entries) {
    if (tensor.is_floating_point() &&
        !at::isfinite(tensor).all().item<bool>()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the weights ", name,
                       " are not finite: they hold a NaN or an "
                       "infinity"));
    }
  }
  return absl::OkStatus();
}

// The optimizer steps done: as the file says, else what Adam and AdamW count,
// since trainings in Python seldom save more than their epoch. Empty where
// neither tells.
absl::optional<int64_t> StepsDone(const Value& file) {
  if (const Value* const step = file.Find("step");
      step != nullptr && step->integer()) {
    return *step->integer();
  }
  const Value* const optimizer = file.Find("optimizer");
  const Value* const states =
      optimizer == nullptr ? nullptr : optimizer->Find("state");
  if (states == nullptr || states->dict() == nullptr) return absl::nullopt;
  absl::optional<int64_t> steps;
  for (const auto& [parameter, state] : states->dict()->entries()) {
    const Value* const count = state.Find("step");
    if (count == nullptr) continue;
    if (count->tensor() != nullptr && count->tensor()->numel() == 1) {
      steps = std::max(steps.value_or(0),
                       static_cast<int64_t>(count->tensor()->item<double>()));
    } else if (count->integer()) {
      steps = std::max(steps.value_or(0), *count->integer());
    }
  }
  return steps;
}

// A disabled scaler's state is an empty dict, in Python too.
void LoadScaler(const Value* value, precision::GradScaler& scaler) {
  if (value == nullptr || !scaler.enabled() ||
      value->Find("scale") == nullptr) {
    return;
  }
  precision::GradScalerState state = scaler.state();
  state.scale = NumberOr(*value, "scale", state.scale);
  state.growth_factor = NumberOr(*value, "growth_factor", state.growth_factor);
  state.backoff_factor =
      NumberOr(*value, "backoff_factor", state.backoff_factor);
  state.growth_interval = static_cast<int64_t>(NumberOr(
      *value, "growth_interval", static_cast<double>(state.growth_interval)));
  state.growth_tracker = static_cast<int64_t>(NumberOr(
      *value, "_growth_tracker", static_cast<double>(state.growth_tracker)));
  scaler.set_state(state);
}

}  // namespace

absl::Status SaveTraining(const std::string& path, Learner& learner,
                          const Position& position,
                          const Description& description) {
  absl::StatusOr<Value> optimizer =
      checkpoint::OptimizerState(learner.optimizer());
  if (!optimizer.ok()) return AtFile(path, optimizer.status());

  Dict training;
  training.Set("global_batch", Value(position.global_batch));
  training.Set("best",
               position.best.has_value() ? Value(*position.best) : Value());
  training.Set("scaler", learner.scaler().enabled()
                             ? ScalerValue(learner.scaler())
                             : Value(Dict()));
  Value about = ValueFromJson(description);
  about.mutable_dict()->Set("training", Value(std::move(training)));

  Dict file;
  file.Set("state_dict",
           checkpoint::ToValue(checkpoint::ModuleState(learner.model())));
  file.Set("optimizer", *std::move(optimizer));
  file.Set("epoch", Value(position.epoch));
  file.Set("step", Value(position.step));
  file.Set("mir", std::move(about));
  return WithExitCode(checkpoint::WriteCheckpoint(path, Value(std::move(file))),
                      launch::kCheckpoint);
}

absl::Status LoadWeights(const std::string& path,
                         models::RegistrationModel& model) {
  MIR_ASSIGN_OR_RETURN(const Value file, Read(path));
  absl::StatusOr<checkpoint::StateDict> state = checkpoint::FindStateDict(file);
  if (state.ok()) state = checkpoint::StripModulePrefix(*state);
  if (!state.ok()) return AtFile(path, state.status());
  absl::Status loaded = CheckFinite(*state);
  if (loaded.ok()) {
    loaded = checkpoint::LoadStateDict(model, *state, /*strict=*/true).status();
  }
  return loaded.ok() ? loaded : AtFile(path, loaded);
}

absl::StatusOr<Position> LoadTraining(const std::string& path,
                                      Learner& learner) {
  MIR_ASSIGN_OR_RETURN(const Value file, Read(path));
  const Value* const optimizer = file.Find("optimizer");
  const absl::optional<int64_t> step = StepsDone(file);
  if (optimizer == nullptr || !step.has_value()) {
    return AtFile(path,
                  absl::InvalidArgumentError(
                      "it holds weights but no `optimizer` and `step`, so "
                      "there is no training to resume"));
  }
  if (const absl::Status status =
          checkpoint::LoadOptimizerState(learner.optimizer(), *optimizer);
      !status.ok()) {
    return AtFile(path, status);
  }
  Position position;
  position.step = *step;
  if (const Value* const epoch = file.Find("epoch")) {
    position.epoch = epoch->integer().value_or(0);
  }
  const Value* const about = file.Find("mir");
  const Value* const training =
      about == nullptr ? nullptr : about->Find("training");
  if (training != nullptr) {
    position.global_batch =
        static_cast<int64_t>(NumberOr(*training, "global_batch", 0));
    if (const Value* const best = training->Find("best");
        best != nullptr && best->number()) {
      position.best = *best->number();
    }
    LoadScaler(training->Find("scaler"), learner.scaler());
  } else {
    LoadScaler(file.Find("scaler"), learner.scaler());
  }
  return position;
}

absl::StatusOr<Description> ReadDescription(const std::string& path) {
  MIR_ASSIGN_OR_RETURN(const Value file, Read(path));
  const Value* const about = file.Find("mir");
  if (about == nullptr || about->dict() == nullptr) {
    return Description::object();
  }
  return JsonFromValue(*about);
}

}  // namespace mir::training
