// Tests linear.h, batch_norm.h and decoder_block.h, beside LibTorch's own
// layers where it has them.

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "mir/models/layers/batch_norm.h"
#include "mir/models/layers/decoder_block.h"
#include "mir/models/layers/linear.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::models {
namespace {

using ::mir::testing::AllClose;
using ::mir::testing::TensorEq;
using ::testing::ElementsAre;

constexpr double kEpsilon = 1.2e-7;

TEST(LinearTest, IsPyTorchsDownToTheFirstValues) {
  for (const bool bias : {true, false}) {
    at::manual_seed(1);
    const Linear ours(5, 7, bias);
    at::manual_seed(1);
    torch::nn::Linear theirs(torch::nn::LinearOptions(5, 7).bias(bias));
    EXPECT_THAT(ours.weight.detach(), TensorEq(theirs->weight.detach()));
    EXPECT_EQ(ours.parameters().size(), bias ? 2u : 1u);
    const at::Tensor x = at::rand({2, 3, 5});
    EXPECT_THAT(ours.forward(x).detach(),
                TensorEq(theirs->forward(x).detach()));
  }
  EXPECT_THROW(Linear(0, 3), c10::ValueError);
}

TEST(LayerNormTest, IsPyTorchs) {
  const at::Tensor x = at::rand({2, 3, 5});
  EXPECT_THAT(LayerNorm(5).forward(x).detach(),
              TensorEq(torch::nn::LayerNorm(torch::nn::LayerNormOptions({5}))
                           ->forward(x)
                           .detach()));
  EXPECT_THROW(LayerNorm(0), c10::ValueError);
}

TEST(DecoderBlockTest, DoublesTheResolutionAndUsesTheShortcut) {
  const DecoderBlock block(4, 3, 2);
  EXPECT_THAT(
      block.forward(at::rand({1, 4, 2, 3, 4}), at::rand({1, 2, 4, 6, 8}))
          .sizes(),
      ElementsAre(1, 3, 4, 6, 8));
  EXPECT_THAT(DecoderBlock(4, 3, 0)
                  .forward(at::rand({1, 4, 2, 3, 4}), at::Tensor())
                  .sizes(),
              ElementsAre(1, 3, 4, 6, 8));
}

TEST(Conv3dReLUTest, HasNormalisedValuesBeforeTheLeak) {
  for (const BlockNorm norm : {BlockNorm::kInstance, BlockNorm::kBatch}) {
    const Conv3dReLU block(2, 3, norm);
    const at::Tensor y = block.forward(at::rand({2, 2, 4, 4, 4})).detach();
    const at::Tensor before = at::where(y < 0, y * 100, y);
    EXPECT_LT(before.mean().abs().item<double>(), 1e-5);
    EXPECT_NEAR(before.square().mean().item<double>(), 1, 0.01);
    EXPECT_EQ(block.named_parameters().contains("1.weight"),
              norm == BlockNorm::kBatch);
  }
}

TEST(BatchNormTest, IsPyTorchsAndKeepsItsCounterAnInteger) {
  BatchNorm ours(3);
  torch::nn::BatchNorm3d theirs(3);
  for (int step = 0; step < 2; ++step) {
    const at::Tensor x = at::randn({2, 3, 2, 3, 4}) + step;
    EXPECT_THAT(ours.forward(x).detach(),
                AllClose(theirs->forward(x).detach(), 8 * kEpsilon));
  }
  ours.eval();
  theirs->eval();
  const at::Tensor x = at::randn({2, 3, 2, 3, 4});
  EXPECT_THAT(ours.forward(x).detach(),
              AllClose(theirs->forward(x).detach(), 8 * kEpsilon));
  EXPECT_EQ(ours.num_batches_tracked.item<int64_t>(), 2);
  ours.to(at::kHalf);
  EXPECT_EQ(ours.num_batches_tracked.scalar_type(), at::kLong);
  EXPECT_EQ(ours.running_var.scalar_type(), at::kHalf);
  EXPECT_EQ(ours.weight.scalar_type(), at::kHalf);
  ours.to(at::kCPU, at::kDouble);
  EXPECT_EQ(ours.num_batches_tracked.scalar_type(), at::kLong);
  EXPECT_EQ(ours.weight.scalar_type(), at::kDouble);
}

// Adds over two threads that stand for ranks.
class Adder {
 public:
  void Add(at::Tensor& sums) {
    std::unique_lock<std::mutex> lock(mutex_);
    const int round = round_;
    if (!first_.defined()) {
      first_ = sums;
      changed_.wait(lock, [&] { return round_ != round; });
    } else {
      const at::Tensor both = first_ + sums;
      first_.copy_(both);
      sums.copy_(both);
      first_ = at::Tensor();
      ++round_;
      changed_.notify_all();
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  at::Tensor first_;
  int round_ = 0;
};

TEST(BatchNormTest, TwoRanksAreOneBatch) {
  const at::Tensor x = at::randn({3, 2, 2, 2, 2}, at::kDouble);
  const at::Tensor cotangent = at::randn({3, 2, 2, 2, 2}, at::kDouble);
  BatchNorm whole(2);
  whole.to(at::kDouble);
  const at::Tensor leaf = x.clone().requires_grad_();
  const at::Tensor expected = whole.forward(leaf);
  expected.backward(cotangent);

  Adder adder;
  const int64_t cut[] = {0, 1, 3};  // Unequal batches.
  at::Tensor outputs[2], leaves[2];
  std::shared_ptr<BatchNorm> norms[2];
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      norms[rank] = std::make_shared<BatchNorm>(2);
      norms[rank]->to(at::kDouble);
      SetSumOverRanks(*norms[rank], [&](at::Tensor& sums) { adder.Add(sums); });
      leaves[rank] =
          x.slice(0, cut[rank], cut[rank + 1]).clone().requires_grad_();
      outputs[rank] = norms[rank]->forward(leaves[rank]);
      outputs[rank].backward(cotangent.slice(0, cut[rank], cut[rank + 1]));
    });
  }
  for (std::thread& rank : ranks) rank.join();

  EXPECT_THAT(at::cat({outputs[0], outputs[1]}).detach(),
              AllClose(expected.detach(), 1e-14));
  EXPECT_THAT(at::cat({leaves[0].grad(), leaves[1].grad()}),
              AllClose(leaf.grad(), 1e-12));
  EXPECT_THAT(norms[0]->weight.grad() + norms[1]->weight.grad(),
              AllClose(whole.weight.grad(), 1e-12));
  EXPECT_THAT(norms[1]->bias.grad() + norms[0]->bias.grad(),
              AllClose(whole.bias.grad(), 1e-12));
  for (const auto& norm : norms) {
    EXPECT_THAT(norm->running_mean, AllClose(whole.running_mean, 1e-14));
    EXPECT_THAT(norm->running_var, AllClose(whole.running_var, 1e-14));
  }
}

TEST(BatchNormTest, ASingleValueIsAnError) {
  BatchNorm norm(2);
  EXPECT_THROW(norm.forward(at::rand({1, 2, 1, 1, 1})), c10::ValueError);
  SetSumOverRanks(norm, [](at::Tensor&) {});
  EXPECT_THROW(norm.forward(at::rand({1, 2, 1, 1, 1})), c10::ValueError);
  SetSumOverRanks(norm, {});
  norm.eval();
  EXPECT_EQ(norm.forward(at::rand({1, 2, 1, 1, 1})).numel(), 2);
}

}  // namespace
}  // namespace mir::models
