#include "mir/training/learner.h"

#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "mir/base/catch_torch.h"
#include "mir/base/status_macros.h"
#include "mir/distributed/collectives.h"
#include "mir/models/rank_statistics.h"
#include "mir/precision/autocast.h"
#include "mir/training/any_size.h"

namespace mir::training {
namespace {

precision::GradScalerOptions ScalerOptions(precision::Precision precision,
                                           const at::Device& device) {
  precision::GradScalerOptions options;
  options.enabled = precision::NeedsGradScaler(precision, device.type());
  return options;
}

// What a rank whose loss is not finite goes backward from: it reaches every
// parameter with a zero gradient, so that the other ranks need not wait for it.
at::Tensor ZeroLoss(const torch::nn::Module& module) {
  at::Tensor sum;
  for (const at::Tensor& parameter : module.parameters()) {
    const at::Tensor zero = parameter.flatten().slice(0, 0, 1).sum() * 0.0;
    sum = sum.defined() ? sum + zero.to(sum.scalar_type()) : zero;
  }
  return sum;
}

bool IsFinite(const at::Tensor& tensor) {
  return at::isfinite(tensor).all().item<bool>();
}

// After the exchange gradients are the same on all ranks, and so is this.
bool GradientsAreFinite(const torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (parameter.grad().defined() && !IsFinite(parameter.grad())) {
        return false;
      }
    }
  }
  return true;
}

// Uniform from 0 to 1, from the generator that the caller seeds.
std::vector<double> RandomHyperparameters(int64_t count) {
  const at::Tensor values = at::rand({count}, at::kDouble);
  const double* const first = values.const_data_ptr<double>();
  return {first, first + count};
}

distributed::DdpOptions ExchangeOptions(const TrainOptions& options) {
  distributed::DdpOptions exchange;
  const auto compression =
      distributed::ParseCompression(options.gradient_compression);
  TORCH_CHECK_VALUE(compression.ok(), compression.status().message());
  exchange.compression = *compression;
  if (options.sync_batchnorm) {
    exchange.sync_batchnorm = models::SetSumOverRanks;
  }
  return exchange;
}

LossTerms NotFinite() {
  const at::Tensor nan =
      at::full({}, std::numeric_limits<double>::quiet_NaN(), at::kDouble);
  return {nan, nan, nan, nan};
}

}  // namespace

std::unique_ptr<torch::optim::Optimizer> MakeOptimizer(
    const TrainOptions& options, std::vector<at::Tensor> parameters) {
  const double lr = options.learning_rate;
  if (options.optimizer == "sgd") {
    torch::optim::SGDOptions sgd(lr);
    if (options.weight_decay >= 0) sgd.weight_decay(options.weight_decay);
    return std::make_unique<torch::optim::SGD>(std::move(parameters), sgd);
  }
  if (options.optimizer == "adamw") {
    torch::optim::AdamWOptions adamw(lr);
    adamw.amsgrad(options.amsgrad);
    if (options.weight_decay >= 0) adamw.weight_decay(options.weight_decay);
    return std::make_unique<torch::optim::AdamW>(std::move(parameters), adamw);
  }
  TORCH_CHECK_VALUE(options.optimizer == "adam",
                    "wanted the optimizer adam, adamw or sgd, got ",
                    options.optimizer);
  torch::optim::AdamOptions adam(lr);
  adam.amsgrad(options.amsgrad);
  if (options.weight_decay >= 0) adam.weight_decay(options.weight_decay);
  return std::make_unique<torch::optim::Adam>(std::move(parameters), adam);
}

absl::Status FitToOptions(models::RegistrationModel& model,
                          const TrainOptions& options) {
  if (options.sync_batchnorm && !models::HasRankStatistics(model)) {
    return absl::InvalidArgumentError(
        "--sync-batchnorm: this model has no batch normalisation; leave it "
        "out");
  }
  if (options.hyperparameters.empty()) return absl::OkStatus();
  return CatchTorch([&] {
    model.SetHyperparameters(options.hyperparameters);
    return absl::OkStatus();
  });
}

Learner::Learner(std::shared_ptr<models::RegistrationModel> model,
                 const Objective& objective, const TrainOptions& options,
                 precision::Precision precision,
                 const distributed::Context& context)
    : model_(std::move(model)),
      objective_(objective),
      precision_(precision),
      context_(context),
      optimizer_(MakeOptimizer(options, model_->parameters())),
      scaler_(ScalerOptions(precision, context.device)),
      distributed_(*model_, context, ExchangeOptions(options)) {}

absl::StatusOr<StepOutcome> Learner::Step(
    const std::vector<data::Batch>& micro_batches, bool stop_wanted,
    const std::function<void()>& before_exchange) {
  model_->train();
  distributed_.ZeroGrad();
  const at::ScalarType dtype = model_->parameters().front().scalar_type();
  // Sums over ranks: loss, similarity, regularizer, prior, bad losses, wishes
  // to stop.
  at::Tensor sums = at::zeros({6}, at::kDouble);
  const std::vector<double> hyperparameters = model_->hyperparameters();
  const double share = 1.0 / static_cast<double>(micro_batches.size());

  for (size_t i = 0; i < micro_batches.size(); ++i) {
    const at::Tensor moving =
        micro_batches[i].moving.to(context_.device, dtype);
    const at::Tensor fixed = micro_batches[i].fixed.to(context_.device, dtype);
    if (!hyperparameters.empty()) {
      model_->SetHyperparameters(
          RandomHyperparameters(static_cast<int64_t>(hyperparameters.size())));
    }
    distributed_.BeforeForward(/*sync=*/i + 1 == micro_batches.size());
    LossTerms terms;
    {
      const precision::Autocast autocast(context_.device.type(), precision_);
      const models::Registration found =
          RegisterAnySize(*model_, moving, fixed);
      // On the CPU losses and warps throw at what is not finite.
      const bool computable =
          context_.device.is_cuda() ||
          (IsFinite(found.displacement) &&
           (!found.weights.defined() || IsFinite(found.weights)));
      terms = computable ? objective_(found, moving, fixed) : NotFinite();
    }
    const bool usable = scaler_.enabled() || IsFinite(terms.total);
    const at::Tensor loss =
        usable ? scaler_.Scale(terms.total * share) : ZeroLoss(*model_);
    if (i + 1 == micro_batches.size()) before_exchange();
    distributed_.BeforeBackward({loss});
    loss.backward();
    distributed_.AfterBackward();

    const at::Tensor total = terms.total.detach().to(at::kCPU, at::kDouble);
    sums[0] += total * share;
    sums[1] += terms.similarity.to(at::kCPU, at::kDouble) * share;
    sums[2] += terms.regularizer.to(at::kCPU, at::kDouble) * share;
    sums[3] += terms.prior.to(at::kCPU, at::kDouble) * share;
    sums[4] += std::isfinite(total.item<double>()) ? 0.0 : 1.0;
  }
  if (!hyperparameters.empty()) model_->SetHyperparameters(hyperparameters);
  sums[5] += stop_wanted ? 1.0 : 0.0;

  MIR_ASSIGN_OR_RETURN(const at::Tensor all,
                       distributed::AllReduceSum(context_, sums));
  const double* const value = all.const_data_ptr<double>();
  const double ranks = context_.world.size;
  StepOutcome outcome{.loss = value[0] / ranks,
                      .similarity = value[1] / ranks,
                      .regularizer = value[2] / ranks,
                      .prior = value[3] / ranks,
                      .finite = value[4] == 0,
                      .stop_requested = value[5] > 0};
  if (outcome.finite && !scaler_.enabled()) {
    outcome.finite = GradientsAreFinite(*optimizer_);
  }
  // An active scaler meets infinite gradients by a smaller scale; elsewhere a
  // bad loss must not reach the weights.
  if (outcome.finite || scaler_.enabled()) {
    outcome.updated = scaler_.Step(*optimizer_);
    scaler_.Update();
  } else {
    outcome.updated = false;
  }
  return outcome;
}

}  // namespace mir::training
