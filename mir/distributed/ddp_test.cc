#include "mir/distributed/ddp.h"

#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "mir/base/exit_status.h"
#include "mir/distributed/collectives.h"
#include "mir/distributed/sampler.h"
#include "mir/distributed/test_ranks.h"
#include "mir/launch/exit_codes.h"
#include "mir/testing/multi_process.h"
#include "mir/testing/status_matchers.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::distributed {
namespace {

using mir::testing::IsOk;
using mir::testing::IsOkAndHolds;
using mir::testing::RelativeL2Near;
using mir::testing::StatusIs;
using mir::testing::Succeeded;
using mir::testing::TensorEq;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kCases = 5;

// Two convolutions and a layer; `sometimes` is used by cases with an odd index,
// `never` by none.
class Net : public torch::nn::Module {
 public:
  explicit Net(uint64_t seed, at::ScalarType dtype = at::kDouble) {
    register_module("first", first_);
    register_module("second", second_);
    register_module("last", last_);
    register_module("sometimes", sometimes_);
    register_module("never", never_);
    to(dtype);
    const at::NoGradGuard no_grad;
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    for (const at::Tensor& parameter : parameters()) {
      parameter.copy_(
          at::randn(parameter.sizes(), generator, at::kDouble).mul_(0.3));
    }
  }

  at::Tensor forward(const at::Tensor& image, bool odd) {
    at::Tensor features = second_->forward(first_->forward(image).tanh());
    features = features.tanh().flatten(1);
    at::Tensor out = last_->forward(features);
    if (odd) out = out.add(sometimes_->forward(features));
    return out;
  }

 private:
  torch::nn::Conv3d first_{torch::nn::Conv3dOptions(1, 3, 3)};
  torch::nn::Conv3d second_{torch::nn::Conv3dOptions(3, 2, 2)};
  torch::nn::Linear last_{2 * 8, 4};
  torch::nn::Linear sometimes_{2 * 8, 4};
  torch::nn::Linear never_{2, 2};
};

at::Tensor Case(int64_t index, at::ScalarType dtype) {
  return at::randn({1, 1, 5, 5, 5},
                   at::make_generator<at::CPUGeneratorImpl>(1000 + index),
                   at::kDouble)
      .to(dtype);
}

// The mean over the cases of the mean square of the output.
at::Tensor Loss(Net& net, const std::vector<Draw>& cases,
                at::ScalarType dtype) {
  at::Tensor sum = at::zeros({}, dtype);
  for (const Draw& draw : cases) {
    const bool odd = draw.index % 2 == 1;
    sum = sum.add(net.forward(Case(draw.index, dtype), odd).square().mean());
  }
  return sum.div(static_cast<double>(cases.size()));
}

struct TrainOptions {
  at::ScalarType dtype = at::kDouble;
  int64_t global_batch = 2;  // Over all ranks and micro-batches.
  int64_t accumulate = 1;
  DdpOptions ddp = {};
};

// The parameters before and after 5 steps, by name.
using Weights = std::map<std::string, std::pair<at::Tensor, at::Tensor>>;

Weights Train(const Context& context, const TrainOptions& options) {
  // Every rank starts from other weights than it should.
  Net net(/*seed=*/context.world.rank, options.dtype);
  DistributedModel model(net, context, options.ddp);
  Weights weights;
  for (const auto& item : net.named_parameters()) {
    weights[item.key()].first = item.value().detach().clone();
  }
  torch::optim::SGD optimizer(net.parameters(),
                              torch::optim::SGDOptions(0.1).momentum(0.9));
  SamplerOptions sampling;
  sampling.case_count = kCases;
  sampling.rank = context.world.rank;
  sampling.world_size = context.world.size;
  sampling.batch_size = options.global_batch / context.world.size;
  const DistributedSampler sampler = *DistributedSampler::Create(sampling);
  const int64_t micro = sampling.batch_size / options.accumulate;
  for (int64_t step = 0; step < 5; ++step) {
    model.ZeroGrad();
    const std::vector<Draw> batch = sampler.Batch(0, step);
    for (int64_t part = 0; part < options.accumulate; ++part) {
      model.BeforeForward(/*sync=*/part == options.accumulate - 1);
      const at::Tensor loss = Loss(net,
                                   {batch.begin() + part * micro,
                                    batch.begin() + (part + 1) * micro},
                                   options.dtype)
                                  .div(static_cast<double>(options.accumulate));
      model.BeforeBackward({loss});
      loss.backward();
      model.AfterBackward();
    }
    optimizer.step();
  }
  for (const auto& item : net.named_parameters()) {
    weights[item.key()].second = item.value().detach().clone();
  }
  return weights;
}

void ExpectSameChange(const Weights& actual, const Weights& expected,
                      double tolerance) {
  for (const auto& [name, pair] : expected) {
    const auto& [before, after] = actual.at(name);
    EXPECT_THAT(before, TensorEq(pair.first)) << name;
    EXPECT_THAT(after.sub(before),
                RelativeL2Near(pair.second.sub(pair.first), tolerance))
        << name;
  }
  EXPECT_THAT(expected.at("last.weight").second,
              Not(TensorEq(expected.at("last.weight").first)));
  EXPECT_THAT(expected.at("sometimes.weight").second,
              Not(TensorEq(expected.at("sometimes.weight").first)));
}

struct EqualityCase {
  std::string name;
  int world;
  TrainOptions options;
  double tolerance;
};

class EqualityTest : public ::testing::TestWithParam<EqualityCase> {};

TEST_P(EqualityTest, AllRanksChangeAsASingleProcessWithTheJoinedBatch) {
  const EqualityCase& param = GetParam();
  TrainOptions joined = param.options;
  joined.accumulate = 1;
  const Weights expected = Train(Context(), joined);
  RunThreadRanks(param.world, [&](const Context& context) {
    ExpectSameChange(Train(context, param.options), expected, param.tolerance);
  });
}

TrainOptions With(at::ScalarType dtype, int64_t global_batch,
                  int64_t accumulate = 1, bool as_view = false) {
  TrainOptions options;
  options.dtype = dtype;
  options.global_batch = global_batch;
  options.accumulate = accumulate;
  options.ddp.gradient_as_bucket_view = as_view;
  return options;
}

// A bucket per parameter or two.
TrainOptions SmallBuckets() {
  TrainOptions options = With(at::kDouble, 2);
  options.ddp.bucket_bytes = 256;
  return options;
}

INSTANTIATE_TEST_SUITE_P(
    Ddp, EqualityTest,
    ::testing::ValuesIn(std::vector<EqualityCase>{
        {"TwoRanksFloat64", 2, With(at::kDouble, 2), 1e-9},
        {"TwoRanksFloat32", 2, With(at::kFloat, 2), 2e-4},
        {"ThreeRanksFloat64", 3, With(at::kDouble, 3), 1e-9},
        {"ThreeRanksFloat32", 3, With(at::kFloat, 3), 2e-4},
        {"TwoRanksOfTwo", 2, With(at::kDouble, 4), 1e-9},
        {"Accumulated", 2, With(at::kDouble, 6, 3), 1e-9},
        {"AccumulatedFloat32", 2, With(at::kFloat, 6, 3), 2e-4},
        {"Views", 2, With(at::kDouble, 2, 1, true), 1e-9},
        {"AccumulatedViews", 2, With(at::kDouble, 4, 2, true), 1e-9},
        {"SmallBuckets", 2, SmallBuckets(), 1e-9},
        {"SingleProcessAccumulated", 1, With(at::kDouble, 4, 4), 1e-9},
    }),
    [](const auto& info) { return info.param.name; });

// ---- Batch normalisation ----

// The sum over ranks, differentiable.
struct Sum : torch::autograd::Function<Sum> {
  static at::Tensor forward(torch::autograd::AutogradContext* context,
                            const at::Tensor& own, const SumOverRanks* sum) {
    context->saved_data["sum"] = reinterpret_cast<int64_t>(sum);
    at::Tensor all = own.clone();
    (*sum)(all);
    return all;
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context,
      const torch::autograd::tensor_list& gradients) {
    at::Tensor all = gradients[0].clone();
    (*reinterpret_cast<const SumOverRanks*>(
        context->saved_data["sum"].toInt()))(all);
    return {all, at::Tensor()};
  }
};

// [N, 3] to zero mean and unit variance over N, of all ranks where told to.
class Normalisation : public torch::nn::Module {
 public:
  Normalisation() {
    register_parameter("weight", weight_);
    register_parameter("bias", bias_);
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor sums =
        at::cat({x.sum(0), x.square().sum(0),
                 at::full({1}, static_cast<double>(x.size(0)), x.options())});
    if (sum) sums = Sum::apply(sums, &sum);
    const at::Tensor count = sums[6];
    const at::Tensor mean = sums.slice(0, 0, 3) / count;
    const at::Tensor variance = sums.slice(0, 3, 6) / count - mean.square();
    return (x - mean) / (variance + 1e-5).sqrt() * weight_ + bias_;
  }
  SumOverRanks sum;

 private:
  at::Tensor weight_ = at::ones({3}, at::kDouble);
  at::Tensor bias_ = at::zeros({3}, at::kDouble);
};

class NormalisedNet : public torch::nn::Module {
 public:
  NormalisedNet() {
    register_module("first", first_);
    register_module("normalisation", normalisation_);
    register_module("last", last_);
    to(at::kDouble);
    const at::NoGradGuard no_grad;
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(3);
    for (const at::Tensor& parameter : parameters()) {
      parameter.copy_(at::randn(parameter.sizes(), generator, at::kDouble));
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    return last_->forward(normalisation_->forward(first_->forward(x)).tanh());
  }

 private:
  torch::nn::Linear first_{2, 3};
  std::shared_ptr<Normalisation> normalisation_ =
      std::make_shared<Normalisation>();
  torch::nn::Linear last_{3, 1};
};

void SetSum(torch::nn::Module& module, const SumOverRanks& sum) {
  // The net lies on the stack, so it is none of the shared ones.
  for (const auto& child : module.modules(/*include_self=*/false)) {
    if (auto* layer = dynamic_cast<Normalisation*>(child.get())) {
      layer->sum = sum;
    }
  }
}

// The gradients of the mean loss over 12 rows, of which each rank has a share.
std::map<std::string, at::Tensor> NormalisedGradients(const Context& context,
                                                      bool synced) {
  NormalisedNet net;
  DdpOptions options;
  if (synced) options.sync_batchnorm = SetSum;
  DistributedModel model(net, context, options);
  const at::Tensor rows = at::randn(
      {12, 2}, at::make_generator<at::CPUGeneratorImpl>(5), at::kDouble);
  const int64_t share = 12 / context.world.size;
  model.BeforeForward();
  const at::Tensor loss =
      net.forward(rows.narrow(0, context.world.rank * share, share))
          .square()
          .mean();
  model.BeforeBackward({loss});
  loss.backward();
  model.AfterBackward();
  std::map<std::string, at::Tensor> gradients;
  for (const auto& item : net.named_parameters()) {
    gradients[item.key()] = item.value().grad().clone();
  }
  return gradients;
}

TEST(SyncBatchnormTest, RanksNormaliseAsOneProcessWithTheJoinedBatch) {
  const auto joined = NormalisedGradients(Context(), /*synced=*/true);
  for (const int ranks : {2, 3}) {
    RunThreadRanks(ranks, [&](const Context& context) {
      const auto synced = NormalisedGradients(context, /*synced=*/true);
      const auto alone = NormalisedGradients(context, /*synced=*/false);
      for (const auto& [name, expected] : joined) {
        if (name == "first.bias") {  // Its gradient is zero, as a mean's is.
          EXPECT_LT(synced.at(name).abs().max().item<double>(), 1e-12);
          continue;
        }
        EXPECT_THAT(synced.at(name), RelativeL2Near(expected, 1e-9)) << name;
      }
      EXPECT_THAT(alone.at("first.weight"),
                  Not(RelativeL2Near(joined.at("first.weight"), 1e-3)));
    });
  }
}

// ---- What a step uses ----

// One forward and backward of `model` around `net`.
void Step(DistributedModel& model, Net& net, int64_t index) {
  model.BeforeForward();
  const at::Tensor loss = Loss(net, {{0, index}}, at::kDouble);
  model.BeforeBackward({loss});
  loss.backward();
  model.AfterBackward();
}

TEST(DistributedModelTest, AnUnusedParameterKeepsNoGradient) {
  RunThreadRanks(2, [](const Context& context) {
    Net net(0);
    DistributedModel model(net, context);
    for (int step = 0; step < 3; ++step) {
      model.ZeroGrad();
      Step(model, net, /*index=*/0);
      EXPECT_FALSE(net.named_parameters()["never.weight"].grad().defined());
      EXPECT_FALSE(net.named_parameters()["sometimes.weight"].grad().defined());
      EXPECT_TRUE(net.named_parameters()["last.weight"].grad().defined());
    }
  });
}

TEST(DistributedModelTest, AParameterUsedOnOneRankGetsItsShareOnAll) {
  Net alone(0);
  Loss(alone, {{0, 1}}, at::kDouble).backward();
  const at::Tensor expected =
      alone.named_parameters()["sometimes.weight"].grad().div(2);
  RunThreadRanks(2, [&](const Context& context) {
    Net net(0);
    DistributedModel model(net, context);
    for (int step = 0; step < 3; ++step) {
      model.ZeroGrad();
      Step(model, net, /*index=*/context.world.rank);
      EXPECT_THAT(net.named_parameters()["sometimes.weight"].grad(),
                  RelativeL2Near(expected, 1e-12));
    }
  });
}

TEST(DistributedModelTest, WithoutTheSearchUnusedParametersAreNamedAtOnce) {
  RunThreadRanks(2, [](const Context& context) {
    Net net(0);
    DdpOptions options;
    options.find_unused_parameters = false;
    DistributedModel model(net, context, options);
    std::string message;
    try {
      Step(model, net, /*index=*/1);
    } catch (const c10::ValueError& error) {
      message = error.what_without_backtrace();
    }
    EXPECT_THAT(message, AllOf(HasSubstr("never.weight, never.bias"),
                               HasSubstr("find_unused_parameters")));
  });
}

// The weights of a small layer after 4 steps with these options, on every rank
// or, in a single process, with the mean of two ranks' gradients.
at::Tensor TrainLinear(const Context& context, const DdpOptions& options) {
  torch::nn::Linear net(3, 2);
  net->to(at::kDouble);
  {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : net->parameters()) {
      parameter.fill_(context.world.rank == 0 ? 0.5 : 7);
    }
  }
  DistributedModel model(*net, context, options);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const bool alone = context.world.size == 1;
  for (int step = 0; step < 4; ++step) {  // Buckets are built anew after one.
    optimizer.zero_grad();
    for (int rank = 0; rank < (alone ? 2 : 1); ++rank) {
      model.BeforeForward();
      const at::Tensor input = at::full(
          {1, 3}, 1. + step + (alone ? rank : context.world.rank), at::kDouble);
      const at::Tensor loss =
          net->forward(input).square().mean().div(alone ? 2 : 1);
      model.BeforeBackward({loss});
      loss.backward();
      model.AfterBackward();
    }
    optimizer.step();
  }
  return net->weight.detach().clone();
}

TEST(DistributedModelTest, WithoutTheSearchAModelThatUsesAllTrains) {
  const at::Tensor expected = TrainLinear(Context(), {});
  DdpOptions options;
  options.find_unused_parameters = false;
  options.bucket_bytes = 8;
  RunThreadRanks(2, [&](const Context& context) {
    EXPECT_THAT(TrainLinear(context, options), RelativeL2Near(expected, 1e-9));
  });
}

TEST(DistributedModelTest, AStaticGraphTrainsAlike) {
  const at::Tensor expected = TrainLinear(Context(), {});
  for (const bool search : {true, false}) {
    DdpOptions options;
    options.static_graph = true;
    options.find_unused_parameters = search;
    options.bucket_bytes = 8;
    RunThreadRanks(2, [&](const Context& context) {
      EXPECT_THAT(TrainLinear(context, options),
                  RelativeL2Near(expected, 1e-9));
    });
  }
}

TEST(DistributedModelTest, AStaticGraphLearnsItsUnusedParameters) {
  Net alone(0);
  Loss(alone, {{0, 1}}, at::kDouble).backward();
  const at::Tensor expected = alone.named_parameters()["first.weight"].grad();
  RunThreadRanks(2, [&](const Context& context) {
    Net net(0);
    DdpOptions options;
    options.static_graph = true;
    DistributedModel model(net, context, options);
    for (int step = 0; step < 3; ++step) {
      model.ZeroGrad();
      Step(model, net, /*index=*/1);
      EXPECT_FALSE(net.named_parameters()["never.weight"].grad().defined());
      EXPECT_THAT(net.named_parameters()["first.weight"].grad(),
                  RelativeL2Near(expected, 1e-12));
    }
  });
}

// Gradients are rounded once on each rank and once in the sum.
TEST(DistributedModelTest, CompressedGradientsAreThoseOf16Bits) {
  const at::Tensor expected = TrainLinear(Context(), {});
  const std::pair<Compression, double> roundings[] = {
      {Compression::kFloat16, 1. / 2048}, {Compression::kBFloat16, 1. / 256}};
  for (const auto& [compression, rounding] : roundings) {
    DdpOptions options;
    options.compression = compression;
    std::mutex mutex;
    std::vector<at::Tensor> weights;
    RunThreadRanks(2, [&](const Context& context) {
      const at::Tensor own = TrainLinear(context, options);
      const std::lock_guard<std::mutex> lock(mutex);
      weights.push_back(own);
    });
    ASSERT_EQ(weights.size(), 2);
    EXPECT_THAT(weights[0], TensorEq(weights[1]));
    EXPECT_THAT(weights[0], RelativeL2Near(expected, 4 * rounding));
    EXPECT_THAT(weights[0], Not(RelativeL2Near(expected, 1e-9)));
  }
}

TEST(ParseCompressionTest, KnowsThreeNames) {
  EXPECT_THAT(ParseCompression("none"), IsOkAndHolds(Compression::kNone));
  EXPECT_THAT(ParseCompression("fp16"), IsOkAndHolds(Compression::kFloat16));
  EXPECT_THAT(ParseCompression("bf16"), IsOkAndHolds(Compression::kBFloat16));
  EXPECT_THAT(ParseCompression("int8").status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("none, fp16 or bf16, got 'int8'")));
}

TEST(DistributedModelTest, CompressedGradientsKeepTheirDtypeAndViews) {
  for (const bool as_view : {false, true}) {
    RunThreadRanks(2, [&](const Context& context) {
      Net net(0, at::kFloat);
      DdpOptions options;
      options.compression = Compression::kBFloat16;
      options.gradient_as_bucket_view = as_view;
      DistributedModel model(net, context, options);
      for (int step = 0; step < 3; ++step) {
        model.ZeroGrad();
        model.BeforeForward();
        const at::Tensor loss = Loss(net, {{0, 1}}, at::kFloat);
        model.BeforeBackward({loss});
        loss.backward();
        model.AfterBackward();
      }
      const at::Tensor gradient = net.named_parameters()["last.weight"].grad();
      EXPECT_EQ(gradient.scalar_type(), at::kFloat);
      EXPECT_THAT(gradient,
                  TensorEq(gradient.to(at::kBFloat16).to(at::kFloat)));
    });
  }
}

TEST(DistributedModelTest, TheDefaultGivesNoAdviceToChangeIt) {
  ::testing::internal::CaptureStderr();
  RunThreadRanks(2, [](const Context& context) {
    torch::nn::Linear net(3, 2);
    DistributedModel model(*net, context);
    for (int step = 0; step < 3; ++step) {
      model.BeforeForward();
      const at::Tensor loss = net->forward(at::ones({1, 3})).mean();
      model.BeforeBackward({loss});
      loss.backward();
      model.AfterBackward();
    }
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), IsEmpty());
}

// ---- What ranks share ----

// One parameter under two names, one that is frozen, and a running sum.
class Odd : public torch::nn::Module {
 public:
  explicit Odd(double value) {
    shared = register_parameter("shared", at::full({2}, value, at::kDouble));
    register_parameter("again", shared);
    frozen = register_parameter("frozen", at::full({2}, value, at::kDouble),
                                /*requires_grad=*/false);
    sum = register_buffer("sum", at::full({2}, value, at::kDouble));
    count = register_buffer(
        "count", at::full({}, static_cast<int64_t>(value), at::kLong));
  }

  at::Tensor shared, frozen, sum, count;
};

TEST(DistributedModelTest, AllRanksStartWithWhatRankZeroHas) {
  RunThreadRanks(3, [](const Context& context) {
    Odd module(context.world.rank + 1);
    const DistributedModel model(module, context);
    const at::Tensor ones = at::ones({2}, at::kDouble);
    EXPECT_THAT(module.shared.detach(), TensorEq(ones));
    EXPECT_THAT(module.frozen, TensorEq(ones));
    EXPECT_THAT(module.sum, TensorEq(ones));
    EXPECT_THAT(module.count, TensorEq(at::ones({}, at::kLong)));
  });
}

TEST(DistributedModelTest, AParameterWithTwoNamesIsExchangedOnce) {
  RunThreadRanks(2, [](const Context& context) {
    Odd module(1);
    DistributedModel model(module, context);
    model.BeforeForward();
    const at::Tensor loss = module.shared.sum().mul(context.world.rank + 1);
    model.BeforeBackward({loss});
    loss.backward();
    model.AfterBackward();
    EXPECT_THAT(module.shared.grad(),
                TensorEq(at::full({2}, 1.5, at::kDouble)));
  });
}

TEST(DistributedModelTest, BuffersAreRankZerosInEachStepThatExchanges) {
  RunThreadRanks(2, [](const Context& context) {
    Odd module(0);
    DistributedModel model(module, context);
    const auto expect_sum = [&](double value) {
      EXPECT_THAT(module.sum, TensorEq(at::full({2}, value, at::kDouble)));
    };
    module.sum.add_(context.world.rank + 1);
    model.BeforeForward(/*sync=*/false);
    expect_sum(context.world.rank + 1);
    model.BeforeForward(/*sync=*/true);
    expect_sum(1);
    // A buffer that got new memory, as a running mean may.
    module.sum.set_data(at::full({2}, context.world.rank + 5., at::kDouble));
    model.BroadcastBuffers();
    expect_sum(5);
  });
  RunThreadRanks(2, [](const Context& context) {
    Odd module(0);
    DdpOptions options;
    options.broadcast_buffers = false;
    DistributedModel model(module, context, options);
    module.sum.add_(context.world.rank + 1);
    model.BeforeForward();
    EXPECT_THAT(module.sum,
                TensorEq(at::full({2}, context.world.rank + 1, at::kDouble)));
  });
}

TEST(WrapModelTest, RanksWithOtherModelsAreNamed) {
  RunThreadRanks(3, [](const Context& context) {
    torch::nn::Linear net(3, context.world.rank == 2 ? 5 : 4);
    EXPECT_THAT(WrapModel(*net, context).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("rank 0 has weight Float [4, 3]"),
                               HasSubstr("rank 2 has weight Float [5, 3]"))));
  });
  RunThreadRanks(2, [](const Context& context) {
    torch::nn::Linear net(
        torch::nn::LinearOptions(3, 4).bias(context.world.rank == 0));
    EXPECT_THAT(WrapModel(*net, context).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("rank 1 has no such tensor")));
  });
}

TEST(WrapModelTest, AModuleWithoutParametersIsRefused) {
  RunThreadRanks(2, [](const Context& context) {
    torch::nn::Linear net(3, 4);
    for (at::Tensor& parameter : net->parameters()) {
      parameter.requires_grad_(false);
    }
    EXPECT_THAT(WrapModel(*net, context).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "the module has no parameter to train"));
  });
}

TEST(WrapModelTest, ASingleProcessNeedsNothing) {
  Net net(0);
  const auto model = WrapModel(net, Context());
  ASSERT_THAT(model, IsOk());
  Step(**model, net, 1);
  (*model)->BroadcastBuffers();
  EXPECT_TRUE(net.named_parameters()["last.weight"].grad().defined());
  (*model)->ZeroGrad();
  EXPECT_FALSE(net.named_parameters()["last.weight"].grad().defined());
}

// ---- Real processes ----

TEST(ProcessesTest, TrainAsASingleProcessAndEndAtOnce) {
  const Weights expected = Train(Context(), With(at::kDouble, 2));
  const auto results = RunProcessRanks(2, [&](Context context) -> std::string {
    ExpectSameChange(Train(context, With(at::kDouble, 2)), expected, 1e-9);
    Cleanup(context);
    return "";
  });
  EXPECT_THAT(results, Each(Succeeded()));
}

// Trains until a peer fails; how it ended and after how long, in seconds.
void ExpectPeerFailure(Context context, absl::Duration at_least,
                       absl::Duration at_most,
                       const std::function<void()>& rank_one) {
  Net net(0);
  const absl::Time start = absl::Now();
  const absl::Status status = CatchCollective(context, [&] {
    DistributedModel model(net, context);
    for (int64_t step = 0; step < 4; ++step) {
      model.ZeroGrad();
      model.BeforeForward();
      const at::Tensor loss = Loss(net, {{0, step}}, at::kDouble);
      model.BeforeBackward({loss});
      if (step == 2 && context.world.rank == 1) rank_one();
      loss.backward();
      model.AfterBackward();
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr(absl::StrCat("rank ", context.world.rank,
                                              " lost a peer"))));
  EXPECT_EQ(ExitCodeOf(status), launch::kPeer);
  EXPECT_GE(absl::Now() - start, at_least);
  EXPECT_LT(absl::Now() - start, at_most);
  Cleanup(context);
}

TEST(ProcessesTest, SurvivorsOfAKilledRankEndAtOnce) {
  const auto results = RunProcessRanks(
      3,
      [](Context context) -> std::string {
        ExpectPeerFailure(std::move(context), absl::ZeroDuration(),
                          absl::Seconds(30), [] { raise(SIGKILL); });
        return "";
      },
      /*collective_timeout=*/absl::Minutes(10));
  ASSERT_EQ(results.size(), 3);
  EXPECT_THAT(results[0], Succeeded());
  EXPECT_EQ(results[1].signal, SIGKILL);
  EXPECT_THAT(results[2], Succeeded());
}

TEST(ProcessesTest, SurvivorsOfARankThatExitsEndAtOnce) {
  const auto results = RunProcessRanks(
      2,
      [](Context context) -> std::string {
        ExpectPeerFailure(std::move(context), absl::ZeroDuration(),
                          absl::Seconds(30), [] { exit(10); });
        return "";
      },
      /*collective_timeout=*/absl::Minutes(10));
  ASSERT_EQ(results.size(), 2);
  EXPECT_THAT(results[0], Succeeded());
  EXPECT_EQ(results[1].exit_code, 10);
}

TEST(ProcessesTest, ARankThatHangsIsNoticedAtTheTimeout) {
  const auto results = RunProcessRanks(
      2,
      [](Context context) -> std::string {
        ExpectPeerFailure(std::move(context), absl::Seconds(1),
                          absl::Seconds(30),
                          [] { absl::SleepFor(absl::Seconds(4)); });
        return "";
      },
      /*collective_timeout=*/absl::Seconds(1));
  EXPECT_THAT(results, Each(Succeeded()));
}

// An error of one's own, while the exchange of gradients is under way: the
// process must not wait for the peers, who wait for it.
TEST(ProcessesTest, ARankWithAnErrorOfItsOwnDoesNotWait) {
  const auto results = RunProcessRanks(
      2,
      [](Context context) -> std::string {
        if (context.world.rank == 0) {
          ExpectPeerFailure(std::move(context), absl::ZeroDuration(),
                            absl::Seconds(30), [] {});
          return "";
        }
        Net net(0);
        DistributedModel model(net, context);
        Step(model, net, 0);
        model.BeforeForward();
        const at::Tensor loss = Loss(net, {{0, 1}}, at::kDouble);
        model.BeforeBackward({loss});
        net.named_parameters()["first.weight"].register_hook(
            [](const at::Tensor& gradient) {
              TORCH_CHECK_VALUE(gradient.numel() == 0, "an error of its own");
              return gradient;
            });
        const absl::Status status = CatchCollective(context, [&] {
          loss.backward();
          return absl::OkStatus();
        });
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("an error of its own")));
        Cleanup(context);
        return "";
      },
      /*collective_timeout=*/absl::Minutes(10));
  EXPECT_THAT(results, Each(Succeeded()));
}

}  // namespace
}  // namespace mir::distributed
