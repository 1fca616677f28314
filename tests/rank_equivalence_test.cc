// Several ranks take the steps of one process with the joined batch.

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <mutex>
#include <string>
#include <vector>

#include "mir/data/synthetic_source.h"
#include "mir/distributed/sampler.h"
#include "mir/distributed/test_ranks.h"
#include "mir/models/voxelmorph/vxm_dense.h"
#include "mir/testing/tensor_matchers.h"
#include "mir/training/learner.h"

namespace mir::training {
namespace {

using ::mir::testing::Compare;

constexpr int kSteps = 5;

struct Split {
  int ranks;
  int64_t batch;
  int64_t accumulate;
};

std::shared_ptr<models::VxmDense> MakeModel(at::ScalarType dtype) {
  static std::mutex generator;  // The global one, which threads share.
  const std::lock_guard<std::mutex> lock(generator);
  torch::manual_seed(7);
  models::VxmDenseConfig config;
  config.image_size = {16, 16, 16};
  config.encoder_features = {8, 8};
  config.decoder_features = {8, 8, 8};
  auto model = std::make_shared<models::VxmDense>(config);
  // A flow layer of 1e-5 gives gradients that say nothing about the rest.
  torch::NoGradGuard no_grad;
  model->named_parameters()["flow.weight"].mul_(1e4);
  model->to(dtype);
  return model;
}

// The change of every weight after the steps, on rank 0 of `split`.
std::vector<at::Tensor> Changes(const Split& split, at::ScalarType dtype) {
  const std::shared_ptr<data::PairSource> source =
      data::SyntheticSource::Make({.size = {16, 16, 16}, .count = 6}).value();
  TrainOptions options;
  options.steps = kSteps;
  options.optimizer = "sgd";
  options.learning_rate = 0.1;
  options.batch_size = split.batch;
  options.accumulate = split.accumulate;
  std::vector<at::Tensor> changes;
  distributed::RunThreadRanks(
      split.ranks, [&](const distributed::Context& context) {
        const auto model = MakeModel(dtype);
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
        for (int64_t step = 0; step < kSteps; ++step) {
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
        const std::vector<at::Tensor> after = model->parameters();
        for (size_t i = 0; i < after.size(); ++i) {
          changes.push_back(after[i].detach() - before[i]);
        }
      });
  return changes;
}

class RankEquivalenceTest : public ::testing::TestWithParam<Split> {};

TEST_P(RankEquivalenceTest, Float64ChangesAgreeTo1e9) {
  const std::vector<at::Tensor> joined = Changes({1, 2, 1}, at::kDouble);
  const std::vector<at::Tensor> split = Changes(GetParam(), at::kDouble);
  ASSERT_EQ(split.size(), joined.size());
  for (size_t i = 0; i < joined.size(); ++i) {
    EXPECT_GT(joined[i].abs().max().item<double>(), 0) << i;
    EXPECT_LE(Compare(split[i], joined[i]).rel_l2, 1e-9) << "parameter " << i;
  }
}

TEST_P(RankEquivalenceTest, Float32ChangesAgreeTo2e4) {
  const std::vector<at::Tensor> joined = Changes({1, 2, 1}, at::kFloat);
  const std::vector<at::Tensor> split = Changes(GetParam(), at::kFloat);
  ASSERT_EQ(split.size(), joined.size());
  for (size_t i = 0; i < joined.size(); ++i) {
    EXPECT_LE(Compare(split[i], joined[i]).rel_l2, 2e-4) << "parameter " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Splits, RankEquivalenceTest,
                         ::testing::Values(Split{2, 1, 1}, Split{1, 1, 2}),
                         [](const auto& info) {
                           return info.param.ranks == 2
                                      ? std::string("TwoRanks")
                                      : std::string("TwoMicroSteps");
                         });

}  // namespace
}  // namespace mir::training
