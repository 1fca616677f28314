// Trains VoxelMorph in mixed precision on several GPUs (or CPU processes), with
// MIR's libraries alone: what `mir/training` does, in one file to read and to
// copy. The data are made up on the fly; nothing is downloaded.
//
//   bazel run //examples/train_multi_gpu_amp -- --precision=bf16
//   bazel run //tools:train -- --gpus 4
//       --worker
//       $PWD/bazel-bin/examples/train_multi_gpu_amp/train_multi_gpu_amp
//   torchrun --nproc-per-node=4 --no-python
//       bazel-bin/examples/train_multi_gpu_amp/train_multi_gpu_amp

#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <iostream>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "mir/base/exit_status.h"
#include "mir/base/status_macros.h"
#include "mir/checkpoint/archive.h"
#include "mir/checkpoint/module_state.h"
#include "mir/data/synthetic_source.h"
#include "mir/distributed/collectives.h"
#include "mir/distributed/data_parallel.h"
#include "mir/distributed/ddp.h"
#include "mir/distributed/init.h"
#include "mir/distributed/sampler.h"
#include "mir/geometry/warp.h"
#include "mir/losses/gradient_penalty.h"
#include "mir/losses/local_ncc.h"
#include "mir/metrics/dice.h"
#include "mir/models/voxelmorph/vxm_dense.h"
#include "mir/precision/autocast.h"
#include "mir/precision/grad_scaler.h"

ABSL_FLAG(std::string, precision, "fp32", "fp32, fp16 (on a GPU) or bf16.");
ABSL_FLAG(std::string, mode, "ddp",
          "ddp: a process per device, started by a launcher; dp: one process "
          "that splits each batch over --replicas.");
ABSL_FLAG(int, replicas, 2, "Of --mode=dp: how many.");
ABSL_FLAG(int64_t, batch_size, 2, "Pairs per process and backward pass.");
ABSL_FLAG(int64_t, accumulate, 1, "Backward passes per step.");
ABSL_FLAG(int64_t, epochs, 2, "Passes over the 16 pairs.");
ABSL_FLAG(bool, find_unused_parameters, true, "Off is a little faster.");
ABSL_FLAG(bool, static_graph, false, "The same graph in each step.");
ABSL_FLAG(bool, gradient_as_bucket_view, false, "Saves a copy of gradients.");
ABSL_FLAG(std::string, compression, "none",
          "How gradients travel: none, fp16 or bf16.");
ABSL_FLAG(std::string, save, "train_multi_gpu_amp.pth", "Where to save.");

namespace {

using namespace mir;  // NOLINT: an example names many rooms.

const std::vector<int64_t> kSize = {32, 32, 32};

std::shared_ptr<models::VxmDense> MakeModel() {
  return std::make_shared<models::VxmDense>(
      models::VxmDenseConfig{kSize, {8, 16, 16}, {16, 16, 16, 8}});
}

absl::StatusOr<distributed::DdpOptions> DdpOptionsFromFlags() {
  distributed::DdpOptions options;
  options.find_unused_parameters = absl::GetFlag(FLAGS_find_unused_parameters);
  options.static_graph = absl::GetFlag(FLAGS_static_graph);
  options.gradient_as_bucket_view =
      absl::GetFlag(FLAGS_gradient_as_bucket_view);
  MIR_ASSIGN_OR_RETURN(
      options.compression,
      distributed::ParseCompression(absl::GetFlag(FLAGS_compression)));
  return options;
}

absl::StatusOr<data::Batch> Load(const data::PairSource& source,
                                 const std::vector<distributed::Draw>& draws) {
  std::vector<data::Pair> pairs;
  for (const distributed::Draw& draw : draws) {
    MIR_ASSIGN_OR_RETURN(data::Pair pair, source.Get(draw.epoch, draw.index));
    pairs.push_back(std::move(pair));
  }
  return data::Collate(pairs);
}

// The mean Dice over the validation pairs, each measured by one rank.
absl::StatusOr<double> Validate(models::VxmDense& model,
                                const data::PairSource& source,
                                const distributed::Context& context) {
  const torch::NoGradGuard no_grad;
  model.eval();
  double sum = 0;
  const std::vector<int64_t> share = distributed::ShareOf(
      source.size(), context.world.rank, context.world.size);
  for (const int64_t index : share) {
    MIR_ASSIGN_OR_RETURN(const data::Batch batch, Load(source, {{0, index}}));
    const at::Tensor displacement =
        model
            .Forward(batch.moving.to(context.device),
                     batch.fixed.to(context.device))
            .displacement.cpu();
    sum +=
        metrics::Dice(geometry::WarpLabels(batch.moving_labels, displacement),
                      batch.fixed_labels)
            .mean;
  }
  model.train();
  return distributed::AllReduceMean(
      context, share.empty() ? 0 : sum / share.size(), share.size());
}

absl::Status Train(const distributed::Context& context) {
  MIR_ASSIGN_OR_RETURN(
      const precision::Precision wanted,
      precision::ParsePrecision(absl::GetFlag(FLAGS_precision)));
  std::string warning;
  MIR_ASSIGN_OR_RETURN(
      const precision::Precision precision,
      precision::RunnablePrecision(wanted, context.device, &warning));
  if (!warning.empty() && distributed::IsMainProcess(context)) {
    std::cerr << "warning: " << warning << "\n";
  }

  torch::manual_seed(0);
  const std::shared_ptr<models::VxmDense> model = MakeModel();
  model->to(context.device);
  // One of the two does the work; the other does nothing.
  const std::string mode = absl::GetFlag(FLAGS_mode);
  if (mode != "ddp" && mode != "dp") {
    return absl::InvalidArgumentError(
        absl::StrCat("--mode wants ddp or dp, got '", mode, "'"));
  }
  const bool in_process = mode == "dp";
  if (in_process && context.world.size > 1) {
    return absl::InvalidArgumentError("--mode=dp wants one process alone");
  }
  distributed::DataParallel replicas(
      model, MakeModel,
      distributed::ConsecutiveDevices(
          context.device, in_process ? absl::GetFlag(FLAGS_replicas) : 1));
  MIR_ASSIGN_OR_RETURN(const distributed::DdpOptions options,
                       DdpOptionsFromFlags());
  MIR_ASSIGN_OR_RETURN(const auto ranks,
                       distributed::WrapModel(*model, context, options));
  torch::optim::AdamW optimizer(model->parameters(),
                                torch::optim::AdamWOptions(1e-3).amsgrad(true));
  precision::GradScalerOptions scaling;
  scaling.enabled =
      precision::NeedsGradScaler(precision, context.device.type());
  precision::GradScaler scaler(scaling);

  MIR_ASSIGN_OR_RETURN(const auto training, data::SyntheticSource::Make(
                                                {.size = kSize, .count = 16}));
  MIR_ASSIGN_OR_RETURN(const auto validation,
                       data::SyntheticSource::Make(
                           {.size = kSize, .count = 4, .validation = true}));
  MIR_ASSIGN_OR_RETURN(const distributed::DistributedSampler sampler,
                       distributed::DistributedSampler::Create(
                           {.case_count = training->size(),
                            .batch_size = absl::GetFlag(FLAGS_batch_size),
                            .rank = context.world.rank,
                            .world_size = context.world.size}));
  const losses::LocalNcc similarity;
  const losses::GradientPenalty smoothness;
  const int64_t accumulate = absl::GetFlag(FLAGS_accumulate);
  if (accumulate < 1 || accumulate > sampler.StepsPerEpoch()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--accumulate wants 1 to ", sampler.StepsPerEpoch(),
                     ", the backward passes of an epoch; got ", accumulate));
  }
  // What an epoch has left at its end is less than a step, and is left out.
  const int64_t passes = sampler.StepsPerEpoch() / accumulate * accumulate;

  for (int64_t epoch = 0; epoch < absl::GetFlag(FLAGS_epochs); ++epoch) {
    double epoch_loss = 0;
    for (int64_t step = 0; step < passes; ++step) {
      const bool last = (step + 1) % accumulate == 0;
      MIR_ASSIGN_OR_RETURN(const data::Batch batch,
                           Load(*training, sampler.Batch(epoch, step)));
      const at::Tensor moving = batch.moving.to(context.device);
      const at::Tensor fixed = batch.fixed.to(context.device);
      ranks->BeforeForward(/*sync=*/last);
      at::Tensor loss;
      {
        const precision::Autocast autocast(context.device.type(), precision);
        const at::Tensor displacement = replicas.Forward(
            {moving, fixed},
            [](torch::nn::Module& replica, const std::vector<at::Tensor>& in) {
              return std::vector<at::Tensor>{
                  dynamic_cast<models::VxmDense&>(replica)
                      .Forward(in[0], in[1])
                      .displacement};
            })[0];
        // Warp and losses compute in float32, whatever autocast says.
        loss = similarity(fixed, geometry::Warp(moving, displacement)) +
               smoothness(displacement);
      }
      const at::Tensor scaled = scaler.Scale(loss / accumulate);
      ranks->BeforeBackward({scaled});
      scaled.backward();
      ranks->AfterBackward();
      replicas.AfterBackward();
      epoch_loss += loss.item<double>() / passes;
      if (!last) continue;
      scaler.Step(optimizer);
      scaler.Update();
      ranks->ZeroGrad();
    }
    MIR_ASSIGN_OR_RETURN(epoch_loss,
                         distributed::AllReduceMean(context, epoch_loss));
    MIR_ASSIGN_OR_RETURN(const double dice,
                         Validate(*model, *validation, context));
    if (distributed::IsMainProcess(context)) {
      std::cout << "epoch " << epoch + 1 << ": loss " << epoch_loss << ", Dice "
                << dice << std::endl;
    }
  }
  if (!distributed::IsMainProcess(context)) return absl::OkStatus();
  checkpoint::Dict file;
  file.Set("state_dict", ToValue(checkpoint::ModuleState(*model)));
  return checkpoint::WriteCheckpoint(absl::GetFlag(FLAGS_save), file);
}

}  // namespace

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  absl::StatusOr<distributed::Context> context = distributed::InitDistributed();
  absl::Status status = context.status();
  if (status.ok()) {
    status =
        distributed::CatchCollective(*context, [&] { return Train(*context); });
    distributed::Cleanup(*context);
  }
  if (!status.ok()) std::cerr << "error: " << status.message() << std::endl;
  return ExitCodeOf(status);
}
