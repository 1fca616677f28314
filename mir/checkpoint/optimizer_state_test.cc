#include "mir/checkpoint/optimizer_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mir/checkpoint/archive.h"
#include "mir/checkpoint/value.h"
#include "mir/checkpoint/value_text.h"
#include "mir/testing/status_matchers.h"

namespace mir::checkpoint {
namespace {

using ::mir::testing::IsOk;
using ::mir::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::torch::optim::Adagrad;
using ::torch::optim::Adam;
using ::torch::optim::AdamOptions;
using ::torch::optim::AdamW;
using ::torch::optim::AdamWOptions;
using ::torch::optim::Optimizer;
using ::torch::optim::OptimizerParamGroup;
using ::torch::optim::SGD;
using ::torch::optim::SGDOptions;

// Two parameters, the second stepped only where asked, and a loss of both.
struct Training {
  explicit Training(const std::function<std::unique_ptr<Optimizer>(
                        const std::vector<torch::Tensor>&)>& make)
      : weights({torch::linspace(-1, 1, 6).view({2, 3}).requires_grad_(true),
                 torch::ones({3}).requires_grad_(true)}),
        optimizer(make(weights)) {}

  void Step(bool both = true) {
    optimizer->zero_grad();
    torch::Tensor loss = (weights[0] * weights[0]).sum().exp();
    if (both) loss = loss + (weights[0] * weights[1]).pow(3).sum();
    loss.backward();
    optimizer->step();
  }

  std::vector<torch::Tensor> weights;
  std::unique_ptr<Optimizer> optimizer;
};

using Make = std::function<std::unique_ptr<Optimizer>(
    const std::vector<torch::Tensor>&)>;

Make MakeAdam(double lr, bool amsgrad) {
  return [=](const std::vector<torch::Tensor>& weights) {
    return std::make_unique<Adam>(
        weights,
        AdamOptions(lr).betas({0.8, 0.95}).weight_decay(0.01).amsgrad(amsgrad));
  };
}
Make MakeAdamW(double lr, bool amsgrad) {
  return [=](const std::vector<torch::Tensor>& weights) {
    return std::make_unique<AdamW>(weights,
                                   AdamWOptions(lr).eps(1e-6).amsgrad(amsgrad));
  };
}
Make MakeSgd(double lr, double momentum, bool nesterov) {
  return [=](const std::vector<torch::Tensor>& weights) {
    return std::make_unique<SGD>(
        weights, SGDOptions(lr).momentum(momentum).nesterov(nesterov));
  };
}
Make MakeGroups() {  // Of different learning rates.
  return [](const std::vector<torch::Tensor>& weights) {
    std::vector<OptimizerParamGroup> groups;
    groups.emplace_back(std::vector<torch::Tensor>{weights[0]},
                        std::make_unique<AdamOptions>(0.1));
    groups.emplace_back(std::vector<torch::Tensor>{weights[1]},
                        std::make_unique<AdamOptions>(0.02));
    return std::make_unique<Adam>(groups, AdamOptions(1.0));
  };
}

// Through a file.
absl::Status Move(const Training& from, Training& to) {
  const std::string path = ::testing::TempDir() + "optimizer_state_test.pth";
  const auto state = OptimizerState(*from.optimizer);
  if (!state.ok()) return state.status();
  if (auto status = WriteCheckpoint(path, *state); !status.ok()) return status;
  const auto again = ReadCheckpoint(path);
  if (!again.ok()) return again.status();
  const torch::NoGradGuard no_gradients;
  for (size_t i = 0; i < to.weights.size(); ++i) {
    to.weights[i].copy_(from.weights[i]);
  }
  return LoadOptimizerState(*to.optimizer, *again);
}

TEST(OptimizerStateTest, TrainingGoesOnBitEqual) {
  const std::pair<Make, Make> cases[] = {
      // The loading one was made with other options: the saved ones count.
      {MakeAdam(0.01, true), MakeAdam(0.5, false)},
      {MakeAdam(0.01, false), MakeAdam(0.5, true)},
      {MakeAdamW(0.01, true), MakeAdamW(0.5, false)},
      {MakeAdamW(0.01, false), MakeAdamW(0.5, true)},
      {MakeSgd(0.001, 0.9, true), MakeSgd(0.5, 0, false)},
      {MakeSgd(0.001, 0, false), MakeSgd(0.5, 0.9, true)},
      {MakeGroups(), MakeGroups()},
  };
  for (const auto& [make, make_other] : cases) {
    for (const bool both : {true, false}) {
      Training saved(make);
      for (int i = 0; i < 3; ++i) saved.Step(both);
      Training loaded(make_other);
      loaded.Step();  // Whose state is to be forgotten.
      ASSERT_THAT(Move(saved, loaded), IsOk());
      for (int i = 0; i < 3; ++i) {
        saved.Step();
        loaded.Step();
        for (size_t k = 0; k < saved.weights.size(); ++k) {
          EXPECT_TRUE(saved.weights[k].equal(loaded.weights[k]));
        }
      }
    }
  }
}

TEST(OptimizerStateTest, HasPythonsLayout) {
  Training adam(MakeAdamW(0.25, true));
  adam.Step(/*both=*/false);
  const auto state = OptimizerState(*adam.optimizer);
  ASSERT_THAT(state, IsOk());
  EXPECT_EQ(
      ValueText(*state->Find("param_groups")),
      "[{'lr': 0.25, 'betas': (0.9, 0.999), 'eps': 1e-06, 'weight_decay': "
      "0.01, 'amsgrad': True, 'maximize': False, 'foreach': None, "
      "'capturable': False, 'differentiable': False, 'fused': None, "
      "'decoupled_weight_decay': True, 'params': [0, 1]}]");
  const Value& states = *state->Find("state");
  EXPECT_EQ(states.dict()->size(), 1);  // The other was not stepped.
  EXPECT_EQ(states.Find(0)->dict()->DescribeKeys(),
            "'step', 'exp_avg', 'exp_avg_sq', 'max_exp_avg_sq'");
  EXPECT_EQ(ValueText(*states.Find(0)->Find("step")), "float32[](1)");

  Training sgd(MakeSgd(0.25, 0.5, false));
  sgd.Step();
  const auto sgd_state = OptimizerState(*sgd.optimizer);
  ASSERT_THAT(sgd_state, IsOk());
  EXPECT_EQ(ValueText(*sgd_state->Find("param_groups")),
            "[{'lr': 0.25, 'momentum': 0.5, 'dampening': 0, 'weight_decay': 0, "
            "'nesterov': False, 'maximize': False, 'foreach': None, "
            "'differentiable': False, 'fused': None, 'params': [0, 1]}]");
  EXPECT_EQ(sgd_state->Find("state")->Find(1)->dict()->DescribeKeys(),
            "'momentum_buffer'");
}

TEST(OptimizerStateTest, CountsStepsBeyondFloat32) {
  Training training(MakeAdam(0.01, false));
  training.Step();
  auto& state = static_cast<torch::optim::AdamParamState&>(
      *training.optimizer->state().begin()->second);
  const int64_t steps = (int64_t{1} << 24) + 1;
  state.step(steps);
  Training other(MakeAdam(0.01, false));
  ASSERT_THAT(Move(training, other), IsOk());
  int64_t most = 0;
  for (const auto& [parameter, loaded] : other.optimizer->state()) {
    most = std::max(most,
                    static_cast<torch::optim::AdamParamState&>(*loaded).step());
  }
  EXPECT_EQ(most, steps);
}

TEST(OptimizerStateTest, LoadsPythonsAdamWWithAmsgrad) {
  const auto checkpoint = ReadCheckpoint("tests/checkpoints/training.pth.tar");
  ASSERT_THAT(checkpoint, IsOk());
  std::vector<torch::Tensor> weights;
  for (const auto& [name, value] :
       checkpoint->Find("state_dict")->dict()->entries()) {
    const bool buffer = name.string()->find("running") != std::string::npos ||
                        !value.tensor()->is_floating_point();
    if (!buffer) {
      weights.push_back(value.tensor()->clone().requires_grad_(true));
    }
  }
  AdamW optimizer(weights, AdamWOptions(0.5));
  ASSERT_THAT(LoadOptimizerState(optimizer, *checkpoint->Find("optimizer")),
              IsOk());
  const auto& options =
      static_cast<AdamWOptions&>(optimizer.param_groups()[0].options());
  EXPECT_TRUE(options.amsgrad());
  const Value& group =
      (*checkpoint->Find("optimizer")->Find("param_groups")->items())[0];
  EXPECT_EQ(options.lr(), group.Find("lr")->number());
  EXPECT_EQ(optimizer.state().size(), weights.size());
  const auto written = OptimizerState(optimizer);
  ASSERT_THAT(written, IsOk());
  EXPECT_EQ(ValueText(*written->Find("state")),
            ValueText(*checkpoint->Find("optimizer")->Find("state")));
}

// A saved state after `change`.
absl::Status LoadChanged(const std::function<void(Dict&)>& change) {
  Training saved(MakeAdam(0.01, true));
  saved.Step();
  auto state = OptimizerState(*saved.optimizer);
  EXPECT_THAT(state, IsOk());
  change(*state->mutable_dict());
  Training loaded(MakeAdam(0.5, false));
  loaded.Step();
  const std::string before = ValueText(*OptimizerState(*loaded.optimizer));
  const absl::Status status = LoadOptimizerState(*loaded.optimizer, *state);
  EXPECT_EQ(ValueText(*OptimizerState(*loaded.optimizer)), before);
  return status;
}
// With an entry of the first group or the first parameter's state set.
absl::Status LoadWithGroup(const std::string& key, const Value& value) {
  return LoadChanged([&](Dict& dict) {
    Value groups = *dict.Find("param_groups");
    (*groups.mutable_items())[0].mutable_dict()->Set(key, value);
    dict.Set("param_groups", groups);
  });
}
absl::Status LoadWithState(const std::string& key, const Value& value) {
  return LoadChanged([&](Dict& dict) {
    Value states = *dict.Find("state");
    Value first = *states.Find(0);
    first.mutable_dict()->Set(key, value);
    states.mutable_dict()->Set(0, first);
    dict.Set("state", states);
  });
}

TEST(OptimizerStateTest, SaysWhatDoesNotFitAndChangesNothing) {
  const auto wants = [](const std::string& text) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    AllOf(HasSubstr("does not fit"), HasSubstr(text)));
  };
  EXPECT_THAT(LoadWithGroup("params", Value::List({0})),
              wants("2 parameters are wanted, it has a list of 1"));
  EXPECT_THAT(LoadWithGroup("params", Value::List({"a", "b"})),
              wants("a list of numbers"));
  EXPECT_THAT(LoadWithGroup("betas", 0.9), wants("'betas' should be two"));
  EXPECT_THAT(LoadWithGroup("lr", "fast"), wants("'lr' should be a number"));
  EXPECT_THAT(LoadWithGroup("maximize", true), wants("'maximize'"));
  EXPECT_THAT(LoadWithGroup("decoupled_weight_decay", true),
              wants("a state of Adam is wanted, this is one of AdamW"));
  EXPECT_THAT(LoadWithState("exp_avg", torch::ones({3, 2})),
              wants("parameter 0: 'exp_avg' should be a tensor [2, 3] as its "
                    "parameter, not a float32 tensor [3, 2]"));
  EXPECT_THAT(LoadWithState("max_exp_avg_sq", Value()),
              wants("'max_exp_avg_sq' should be a tensor"));
  EXPECT_THAT(LoadWithState("step", "one"), wants("'step' should be a number"));
  EXPECT_THAT(
      LoadChanged([](Dict& dict) { dict.Set("param_groups", Value::List()); }),
      wants("1 groups of parameters are wanted, it has 0"));
  EXPECT_THAT(LoadChanged([](Dict& dict) { dict.Set("state", 3); }),
              wants("'state' should be a dict"));
  EXPECT_THAT(LoadChanged([](Dict& dict) { dict = Dict(); }),
              wants("'state' is wanted, its keys are none"));
  EXPECT_THAT(LoadChanged([](Dict& dict) {
                Dict states;
                states.Set(0, 3);
                dict.Set("state", states);
              }),
              wants("a dict is wanted, not the int 3"));
}

TEST(OptimizerStateTest, AcceptsNumbersAsTensors) {
  Training saved(MakeAdam(0.01, false));
  saved.Step();
  auto state = OptimizerState(*saved.optimizer);
  ASSERT_THAT(state, IsOk());
  Value groups = *state->Find("param_groups");
  (*groups.mutable_items())[0].mutable_dict()->Set(
      "lr", torch::full({}, 0.125, torch::kDouble));
  state->mutable_dict()->Set("param_groups", groups);
  Training loaded(MakeAdam(0.5, false));
  ASSERT_THAT(LoadOptimizerState(*loaded.optimizer, *state), IsOk());
  EXPECT_EQ(loaded.optimizer->param_groups()[0].options().get_lr(), 0.125);
}

TEST(OptimizerStateTest, RefusesOtherOptimizersAndTheirStates) {
  Training sgd(MakeSgd(0.1, 0.9, false));
  sgd.Step();
  Training adam(MakeAdam(0.1, false));
  adam.Step();
  Training adamw(MakeAdamW(0.1, false));
  EXPECT_THAT(Move(sgd, adam), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("'betas' is wanted")));
  EXPECT_THAT(Move(adam, sgd), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("'momentum' is wanted")));
  EXPECT_THAT(Move(adam, adamw),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a state of AdamW is wanted")));
  Training adagrad([](const std::vector<torch::Tensor>& weights) {
    return std::make_unique<Adagrad>(weights);
  });
  EXPECT_THAT(OptimizerState(*adagrad.optimizer),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("Adam, AdamW and SGD")));
  EXPECT_THAT(LoadOptimizerState(*adagrad.optimizer, Value(Dict())),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("Adam, AdamW and SGD")));
}

}  // namespace
}  // namespace mir::checkpoint
