#include "mir/distributed/data_parallel.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <string>

#include "mir/precision/autocast.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::distributed {
namespace {

using mir::testing::RelativeL2Near;
using mir::testing::TensorEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Tensors = std::vector<at::Tensor>;

// A layer scaled by a hyperparameter, and one that forward never uses.
class Net : public torch::nn::Module {
 public:
  Net() {
    register_module("layer", layer);
    register_module("never", never);
    sizes = register_buffer("sizes", at::ones({2}, at::kDouble));
    to(at::kDouble);
  }

  // The output [B, 2] and its energy, a scalar.
  Tensors forward(const at::Tensor& input, const at::Tensor& hyper) {
    const at::Tensor out = layer->forward(input).mul(hyper).mul(sizes);
    return {out, out.square().mean()};
  }

  torch::nn::Linear layer{3, 2};
  torch::nn::Linear never{3, 2};
  at::Tensor sizes;
};

std::shared_ptr<Net> MakeNet() { return std::make_shared<Net>(); }

Tensors RunNet(torch::nn::Module& replica, const Tensors& inputs) {
  return dynamic_cast<Net&>(replica).forward(inputs[0], inputs[1]);
}

Tensors Inputs(int64_t batch) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
  return {at::randn({batch, 3}, generator, at::kDouble),
          at::full({batch, 1}, 0.5, at::kDouble)};
}

std::string ValueErrorOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

std::vector<at::Device> Cpus(int count) {
  return ConsecutiveDevices(at::kCPU, count);
}

struct Trained {
  Tensors outputs;
  at::Tensor weight;
};

// Three steps of SGD on a batch over so many replicas.
Trained Train(int replicas, int64_t batch) {
  const auto net = MakeNet();
  {
    const at::NoGradGuard no_grad;
    net->layer->weight.copy_(at::arange(6., at::kDouble).view({2, 3}));
    net->layer->bias.fill_(0.25);
  }
  DataParallel parallel(net, MakeNet, Cpus(replicas));
  torch::optim::SGD optimizer(net->parameters(),
                              torch::optim::SGDOptions(0.01).momentum(0.9));
  Trained trained;
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    trained.outputs = parallel.Forward(Inputs(batch), RunNet);
    trained.outputs[0].square().mean().backward();
    parallel.AfterBackward();
    EXPECT_FALSE(net->never->weight.grad().defined());
    optimizer.step();
  }
  trained.weight = net->layer->weight.detach().clone();
  return trained;
}

TEST(DataParallelTest, ReplicasTrainAsOneModuleOnTheWholeBatch) {
  const Trained alone = Train(1, 5);
  for (const int replicas : {2, 3}) {
    const Trained split = Train(replicas, 5);
    EXPECT_THAT(split.outputs[0], RelativeL2Near(alone.outputs[0], 1e-12));
    EXPECT_THAT(split.weight, RelativeL2Near(alone.weight, 1e-12));
  }
}

TEST(DataParallelTest, AScalarComesBackOncePerReplica) {
  const Trained split = Train(2, 4);
  ASSERT_EQ(split.outputs[1].sizes(), at::IntArrayRef({2}));
  EXPECT_THAT(split.outputs[1].mean().detach(),
              RelativeL2Near(Train(1, 4).outputs[1].mean().detach(), 1e-12));
}

TEST(DataParallelTest, ReplicasWithoutAPartOfTheBatchStayIdle) {
  const Trained split = Train(4, 5);  // Parts of two, two and one.
  EXPECT_EQ(split.outputs[0].size(0), 5);
  EXPECT_EQ(split.outputs[1].size(0), 3);
  EXPECT_THAT(split.weight, RelativeL2Near(Train(1, 5).weight, 1e-12));
}

TEST(DataParallelTest, ReplicasFollowTheModule) {
  const auto net = MakeNet();
  DataParallel parallel(net, MakeNet, Cpus(2));
  net->eval();
  net->sizes.fill_(3);
  net->layer->weight.requires_grad_(false);
  const auto check = [](torch::nn::Module& replica, const Tensors& inputs) {
    auto& own = dynamic_cast<Net&>(replica);
    EXPECT_FALSE(own.is_training());
    EXPECT_FALSE(own.layer->weight.requires_grad());
    EXPECT_THAT(own.sizes, TensorEq(at::full({2}, 3., at::kDouble)));
    return own.forward(inputs[0], inputs[1]);
  };
  parallel.Forward(Inputs(2), check);
}

TEST(DataParallelTest, ReplicasRunUnderTheCallersModes) {
  DataParallel parallel(MakeNet(), MakeNet, Cpus(2));
  const precision::Autocast autocast(at::kCPU, precision::Precision::kBFloat16);
  const at::NoGradGuard no_grad;
  const auto check = [](torch::nn::Module& replica, const Tensors& inputs) {
    EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCPU));
    EXPECT_FALSE(at::GradMode::is_enabled());
    return RunNet(replica, inputs);
  };
  EXPECT_FALSE(parallel.Forward(Inputs(2), check)[0].requires_grad());
}

TEST(DataParallelTest, AnErrorOnAReplicaPassesThrough) {
  DataParallel parallel(MakeNet(), MakeNet, Cpus(2));
  const Tensors inputs = {at::ones({4, 7}, at::kDouble),
                          at::ones({4, 1}, at::kDouble)};
  EXPECT_THROW(parallel.Forward(inputs, RunNet), c10::Error);
}

TEST(DataParallelTest, RunningStatisticsAreRefusedWhereTheyChange) {
  const auto make = [] { return torch::nn::BatchNorm1d(3).ptr(); };
  const auto norm = make();
  DataParallel parallel(norm, make, Cpus(2));
  const auto forward = [](torch::nn::Module& replica, const Tensors& inputs) {
    return Tensors{
        dynamic_cast<torch::nn::BatchNorm1dImpl&>(replica).forward(inputs[0])};
  };
  const Tensors inputs = {at::arange(12., at::kFloat).view({4, 3})};
  EXPECT_THAT(ValueErrorOf([&] { parallel.Forward(inputs, forward); }),
              HasSubstr("forward changes the buffer num_batches_tracked"));
  norm->eval();
  EXPECT_EQ(parallel.Forward(inputs, forward)[0].size(0), 4);
}

TEST(ConsecutiveDevicesTest, CountsCudaDevicesAndRepeatsTheCpu) {
  EXPECT_THAT(ConsecutiveDevices(at::Device(at::kCUDA, 1), 2),
              ElementsAre(at::Device(at::kCUDA, 1), at::Device(at::kCUDA, 2)));
  EXPECT_THAT(ConsecutiveDevices(at::kCPU, 2),
              ElementsAre(at::Device(at::kCPU), at::Device(at::kCPU)));
}

TEST(DataParallelTest, RefusesWhatCannotBeSplit) {
  EXPECT_THAT(ValueErrorOf([] { DataParallel(MakeNet(), MakeNet, {}); }),
              HasSubstr("needs a device"));
  EXPECT_THAT(
      ValueErrorOf([] {
        DataParallel(
            MakeNet(), [] { return torch::nn::Linear(3, 2).ptr(); }, Cpus(2));
      }),
      HasSubstr("replica 1 has 2 parameters and buffers, the module 5"));
  DataParallel parallel(MakeNet(), MakeNet, Cpus(2));
  EXPECT_THAT(ValueErrorOf([&] { parallel.Forward({}, RunNet); }),
              HasSubstr("needs an input"));
  const Tensors uneven = {at::ones({4, 3}, at::kDouble),
                          at::ones({1, 1}, at::kDouble)};
  EXPECT_THAT(ValueErrorOf([&] { parallel.Forward(uneven, RunNet); }),
              HasSubstr("[B, 1]"));
  const auto odd = [&](torch::nn::Module&, const Tensors& inputs) {
    return inputs[0].size(0) == 2 ? Tensors{inputs[0]} : Tensors{};
  };
  EXPECT_THAT(ValueErrorOf([&] { parallel.Forward(Inputs(3), odd); }),
              HasSubstr("as many outputs from each replica, got 1 and 0"));
}

}  // namespace
}  // namespace mir::distributed
