// Several ranks take the steps of one process with the joined batch.

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "mir/data/synthetic_source.h"
#include "mir/distributed/ddp.h"
#include "mir/distributed/sampler.h"
#include "mir/distributed/test_ranks.h"
#include "mir/models/model_list.h"
#include "mir/models/registry.h"
#include "mir/precision/grad_scaler.h"
#include "mir/testing/tensor_matchers.h"
#include "mir/training/learner.h"

namespace mir::training {
namespace {

using ::mir::testing::Compare;

struct Split {
  int ranks;
  int64_t batch;
  int64_t accumulate;
};

// What is trained, and for how long.
struct Task {
  int64_t side;
  int64_t steps;
  const char* model = "voxelmorph";
  const char* unused = "-";  // How names of weights without gradient begin.
  bool sync_batchnorm = false;
  const char* compression = "none";
};
constexpr Task kFiveSteps = {16, 5};
// Its change is the gradient, times the learning rate.
constexpr Task kGradient = {32, 1};
constexpr Task kTransMorph = {32, 1, "transmorph"};
// Has batch normalisations, and a head that it does not use.
constexpr Task kTransMorphTvf = {32, 1, "transmorph_tvf", "reg_head.", true};

std::shared_ptr<models::RegistrationModel> MakeModel(const Task& task,
                                                     at::ScalarType dtype) {
  static std::mutex generator;  // The global one, which threads share.
  const std::lock_guard<std::mutex> lock(generator);
  torch::manual_seed(7);
  const std::string side = std::to_string(task.side);
  std::vector<std::string> changes = {
      absl::StrCat("img_size=[", side, ",", side, ",", side, "]")};
  // No rank draws at random what another does not.
  changes.push_back(task.model == std::string("voxelmorph")
                        ? "nb_unet_features=[[8,8],[8,8,8]]"
                        : "drop_path_rate=0");
  const std::shared_ptr<models::RegistrationModel> model =
      models::BuildModel(
          task.model, models::ModelConfig(task.model, "tiny", changes).value())
          .value();
  // Flow layers of 1e-5 give gradients that say nothing about the rest.
  torch::NoGradGuard no_grad;
  for (at::Tensor& weight : model->parameters()) {
    const double most = weight.abs().max().item<double>();
    if (most > 0 && most < 1e-3) weight.mul_(1e4);
  }
  model->to(dtype);
  return model;
}

// The change of every weight after the steps, on rank 0 of `split`.
torch::OrderedDict<std::string, at::Tensor> Changes(const Task& task,
                                                    const Split& split,
                                                    at::ScalarType dtype) {
  const std::shared_ptr<data::PairSource> source =
      data::SyntheticSource::Make(
          {.size = {task.side, task.side, task.side}, .count = 6})
          .value();
  TrainOptions options;
  options.steps = task.steps;
  options.optimizer = "sgd";
  options.learning_rate = 0.1;
  options.batch_size = split.batch;
  options.accumulate = split.accumulate;
  options.sync_batchnorm = task.sync_batchnorm;
  options.gradient_compression = task.compression;
  torch::OrderedDict<std::string, at::Tensor> changes;
  distributed::RunThreadRanks(
      split.ranks, [&](const distributed::Context& context) {
        const auto model = MakeModel(task, dtype);
        std::vector<at::Tensor> before;
        for (const at::Tensor& weight : model->parameters()) {
          before.push_back(weight.detach().clone());
        }
        Learner learner(model, Objective::Make(options).value(), options,
                        precision::Precision::kFloat32, context);
        const auto sampler = distributed::DistributedSampler::Create(
                                 {.case_count = source->size(),
                                  .batch_size = split.batch,
                                  .rank = context.world.rank,
                                  .world_size = split.ranks})
                                 .value();
        for (int64_t step = 0; step < task.steps; ++step) {
          std::vector<data::Batch> micro_batches;
          for (int64_t i = 0; i < split.accumulate; ++i) {
            std::vector<data::Pair> pairs;
            for (const distributed::Draw& draw :
                 sampler.Batch(0, step * split.accumulate + i)) {
              pairs.push_back(source->Get(draw.epoch, draw.index).value());
            }
            micro_batches.push_back(data::Collate(pairs).value());
          }
          const StepOutcome outcome =
              learner.Step(micro_batches, /*stop_wanted=*/false).value();
          EXPECT_TRUE(outcome.updated);
        }
        if (context.world.rank != 0) return;
        for (const auto& after : model->named_parameters()) {
          changes.insert(after.key(),
                         after.value().detach() - before[changes.size()]);
        }
      });
  return changes;
}

at::Tensor Flat(const torch::OrderedDict<std::string, at::Tensor>& tensors) {
  std::vector<at::Tensor> flat;
  for (const auto& tensor : tensors) flat.push_back(tensor.value().flatten());
  return at::cat(flat);
}

// Each parameter within `each` of the joined batch's, and all together within
// `whole`, in the relative L2 norm.
void ExpectAlike(const Task& task, const Split& joined, const Split& split,
                 at::ScalarType dtype, double each, double whole) {
  const auto expected = Changes(task, joined, dtype);
  const auto actual = Changes(task, split, dtype);
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& change : expected) {
    const bool unused = absl::StartsWith(change.key(), task.unused);
    EXPECT_EQ(change.value().abs().max().item<double>() == 0, unused)
        << change.key();
    EXPECT_LE(Compare(actual[change.key()], change.value()).rel_l2, each)
        << change.key();
  }
  EXPECT_LE(Compare(Flat(actual), Flat(expected)).rel_l2, whole);
}

struct Case {
  const char* name;
  Task task;
  Split joined;
  Split split;
};

class RankEquivalenceTest : public ::testing::TestWithParam<Case> {};

TEST_P(RankEquivalenceTest, Float64AgreesTo1e9) {
  const auto& [name, task, joined, split] = GetParam();
  ExpectAlike(task, joined, split, at::kDouble, 1e-9, 1e-9);
}

TEST_P(RankEquivalenceTest, Float32AgreesTo2e4AndAsAWholeTo5e5) {
  const auto& [name, task, joined, split] = GetParam();
  ExpectAlike(task, joined, split, at::kFloat, 2e-4, 5e-5);
}

// 8 bits of fraction, of which each of two ranks rounds its share.
TEST(RanksTest, CompressedGradientsAgreeToTheirPrecision) {
  Task task = kGradient;
  task.compression = "bf16";
  ExpectAlike(task, {1, 2, 1}, {2, 1, 1}, at::kFloat, 1e-2, 5e-3);
}

// Under fp16 one rank's gradients overflow: no rank may take the step alone, or
// have another scale from then on.
TEST(RanksTest, AnOverflowOnOneRankSkipsTheStepOnAll) {
  distributed::RunThreadRanks(2, [](const distributed::Context& context) {
    torch::nn::Linear layer(2, 2);
    distributed::DistributedModel model(*layer, context);
    torch::optim::SGD optimizer(layer->parameters(),
                                torch::optim::SGDOptions(0.1));
    precision::GradScalerOptions options;
    options.enabled = true;
    precision::GradScaler scaler(options);
    const double scale = scaler.state().scale;
    const at::Tensor before = layer->weight.detach().clone();
    for (const bool overflows : {true, false}) {
      model.ZeroGrad();
      model.BeforeForward();
      const double factor = overflows && context.world.rank == 1
                                ? std::numeric_limits<double>::infinity()
                                : 1.0;
      const at::Tensor loss =
          scaler.Scale(layer(at::ones({1, 2})).sum() * factor);
      model.BeforeBackward({loss});
      loss.backward();
      model.AfterBackward();
      EXPECT_EQ(scaler.Step(optimizer), !overflows);
      scaler.Update();
      EXPECT_EQ(scaler.state().scale, scale / 2);
      EXPECT_EQ(at::equal(layer->weight, before), overflows);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Splits, RankEquivalenceTest,
    ::testing::Values(
        Case{"TwoRanks", kFiveSteps, {1, 2, 1}, {2, 1, 1}},
        Case{"TwoMicroSteps", kFiveSteps, {1, 2, 1}, {1, 1, 2}},
        Case{"GradientOfTwoRanks", kGradient, {1, 6, 1}, {2, 3, 1}},
        Case{"GradientOfThreeRanks", kGradient, {1, 6, 1}, {3, 2, 1}},
        Case{"GradientOfThreeRanksInTwoParts", kGradient, {1, 6, 1}, {3, 1, 2}},
        Case{"TransMorph", kTransMorph, {1, 2, 1}, {2, 1, 1}},
        Case{"BatchNormalisation", kTransMorphTvf, {1, 2, 1}, {2, 1, 1}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace mir::training
