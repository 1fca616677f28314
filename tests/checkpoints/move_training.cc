// The C++ side of checkpoint_python_test: trains a module that Python also has
// (`small`, or a VxmDense, `vxm`), and moves the training through files.
//
//   move_training write MODULE OPTIMIZER FILE   a training after some steps,
//                                               with the losses of the next
//   move_training read MODULE OPTIMIZER FILE    goes on from such a file; fails
//                                               where the next losses differ
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "mir/base/status_macros.h"
#include "mir/checkpoint/archive.h"
#include "mir/checkpoint/module_state.h"
#include "mir/checkpoint/optimizer_state.h"
#include "mir/checkpoint/state_dict.h"
#include "mir/checkpoint/value.h"
#include "mir/checkpoint/value_text.h"
#include "mir/models/voxelmorph/vxm_dense.h"

namespace mir::checkpoint {
namespace {

constexpr int kSteps = 3;
constexpr double kTolerance = 1e-5;

struct Trained {
  std::shared_ptr<torch::nn::Module> module;
  std::function<torch::Tensor()> loss;
};

struct Small : torch::nn::Module {
  Small() {
    conv = register_module(
        "conv", torch::nn::Conv3d(torch::nn::Conv3dOptions(2, 4, 3)));
    norm = register_module("norm", torch::nn::BatchNorm3d(4));
    head = register_module("head", torch::nn::Linear(4, 3));
    index = register_buffer("relative_position_index",
                            torch::arange(16).view({4, 4}));
  }

  torch::Tensor Loss() {
    const torch::Tensor input =
        torch::linspace(-1, 1, 2 * 2 * 125).view({2, 2, 5, 5, 5});
    const torch::Tensor features =
        torch::relu(norm(conv(torch::sin(3 * input * input.abs()))));
    return (head(features.mean({2, 3, 4})) - 1).pow(2).mean();
  }

  torch::nn::Conv3d conv{nullptr};
  torch::nn::BatchNorm3d norm{nullptr};
  torch::nn::Linear head{nullptr};
  torch::Tensor index;
};

// As move_training.py configures MIR's.
absl::StatusOr<Trained> MakeVxm() {
  MIR_ASSIGN_OR_RETURN(
      const models::VxmDenseConfig config,
      models::VxmDenseConfigFromJson({{"img_size", {8, 16, 8}},
                                      {"nb_unet_features", {{4, 8}, {8, 8, 4}}},
                                      {"gen_output", true}}));
  const auto vxm = std::make_shared<models::VxmDense>(config);
  return Trained{vxm, [vxm] {
                   const torch::Tensor x =
                       torch::linspace(-1, 1, 1024).view({1, 1, 8, 16, 8});
                   const torch::Tensor moving = torch::sin(9 * x);
                   const torch::Tensor flow =
                       vxm->Register(moving, torch::cos(7 * x)).displacement;
                   return (flow - moving).pow(2).mean();
                 }};
}

absl::StatusOr<Trained> MakeTrained(const std::string& name) {
  if (name == "vxm") return MakeVxm();
  if (name != "small") {
    return absl::InvalidArgumentError(absl::StrCat("no module ", name));
  }
  const auto small = std::make_shared<Small>();
  return Trained{small, [small] { return small->Loss(); }};
}

absl::StatusOr<std::unique_ptr<torch::optim::Optimizer>> MakeOptimizer(
    const std::string& name, torch::nn::Module& module) {
  if (name == "adam") {
    return std::make_unique<torch::optim::Adam>(
        module.parameters(), torch::optim::AdamOptions(0.01));
  }
  if (name == "adamw") {
    return std::make_unique<torch::optim::AdamW>(
        module.parameters(), torch::optim::AdamWOptions(0.01).amsgrad(true));
  }
  if (name == "sgd") {
    return std::make_unique<torch::optim::SGD>(
        module.parameters(),
        torch::optim::SGDOptions(0.01).momentum(0.9).nesterov(true));
  }
  return absl::InvalidArgumentError(absl::StrCat("no optimizer ", name));
}

std::vector<double> Train(const Trained& trained,
                          torch::optim::Optimizer& optimizer) {
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const torch::Tensor loss = trained.loss();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

// What move_training.py holds too, of every kind.
Value Values() {
  const torch::Tensor base = torch::arange(24, torch::kFloat);
  Dict tensors;
  for (const at::ScalarType dtype :
       {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf,
        at::kBFloat16, at::kFloat, at::kDouble, at::kBool, at::kUInt16}) {
    tensors.Set(DtypeName(dtype), torch::arange(2).to(dtype));
  }
  tensors.Set("base", base);
  tensors.Set("view", base.view({4, 6}).slice(1, 2, 5));
  tensors.Set("transposed", base.view({4, 6}).t());
  tensors.Set("expanded", base.slice(0, 0, 3).expand({4, 3}));
  tensors.Set("scalar", torch::full({}, 2.5));
  tensors.Set("empty", torch::empty({0, 3}));
  Dict values;
  values.Set("ints", Value::List({0, 255, 256, 65536, -1, int64_t{1} << 40}));
  values.Set("floats", Value::Tuple({0.1, -2.5e300}));
  values.Set("none", Value());
  values.Set("text", "\xc3\xa9t\xc3\xa9");
  values.Set("bytes", Value::Bytes("\x01\xff"));
  values.Set("dtype", at::kBFloat16);
  values.Set(7, Value::List({true, false, Value::Tuple(), Dict()}));
  values.Set("tensors", std::move(tensors));
  return values;
}

absl::Status WriteTraining(const std::string& module, const std::string& name,
                           const std::string& path) {
  torch::manual_seed(1);
  MIR_ASSIGN_OR_RETURN(const Trained trained, MakeTrained(module));
  MIR_ASSIGN_OR_RETURN(const auto optimizer,
                       MakeOptimizer(name, *trained.module));
  Train(trained, *optimizer);
  // The state is the module's own: write it before going on.
  const auto write = [&](std::vector<Value> losses) -> absl::Status {
    Dict checkpoint;
    checkpoint.Set("epoch", 3);
    checkpoint.Set("state_dict", ToValue(ModuleState(*trained.module)));
    MIR_ASSIGN_OR_RETURN(Value state, OptimizerState(*optimizer));
    checkpoint.Set("optimizer", std::move(state));
    checkpoint.Set("next_losses", Value::List(std::move(losses)));
    checkpoint.Set("values", Values());
    return WriteCheckpoint(path, Value(std::move(checkpoint)));
  };
  MIR_RETURN_IF_ERROR(write({}));
  std::vector<Value> losses;
  MIR_ASSIGN_OR_RETURN(const Value saved, ReadCheckpoint(path));
  for (const double loss : Train(trained, *optimizer)) losses.push_back(loss);
  Value again = saved;
  again.mutable_dict()->Set("next_losses", Value::List(std::move(losses)));
  return WriteCheckpoint(path, again);
}

absl::Status ReadTraining(const std::string& module, const std::string& name,
                          const std::string& path) {
  MIR_ASSIGN_OR_RETURN(const Value checkpoint, ReadCheckpoint(path));
  MIR_ASSIGN_OR_RETURN(const Trained trained, MakeTrained(module));
  MIR_ASSIGN_OR_RETURN(const auto optimizer,
                       MakeOptimizer(name, *trained.module));
  MIR_ASSIGN_OR_RETURN(const StateDict wrapped, FindStateDict(checkpoint));
  MIR_ASSIGN_OR_RETURN(const StateDict state, StripModulePrefix(wrapped));
  MIR_RETURN_IF_ERROR(
      LoadStateDict(*trained.module, state, /*strict=*/true).status());
  const Value* optimizer_state = checkpoint.Find("optimizer");
  const Value* expected = checkpoint.Find("next_losses");
  const Value* values = checkpoint.Find("values");
  if (optimizer_state == nullptr || expected == nullptr || values == nullptr) {
    return absl::InvalidArgumentError("the checkpoint lacks parts");
  }
  if (ValueText(*values) != ValueText(Values())) {
    return absl::InternalError(absl::StrCat("wanted ", ValueText(Values()),
                                            "\ngot ", ValueText(*values)));
  }
  MIR_RETURN_IF_ERROR(LoadOptimizerState(*optimizer, *optimizer_state));
  const std::vector<double> losses = Train(trained, *optimizer);
  for (int step = 0; step < kSteps; ++step) {
    const double wanted = expected->items()->at(step).number().value();
    if (!(std::abs(losses[step] - wanted) <= kTolerance * wanted)) {
      return absl::InternalError(absl::StrCat("loss ", step,
                                              " after loading: wanted ", wanted,
                                              ", got ", losses[step]));
    }
  }
  return absl::OkStatus();
}

absl::Status Run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 4 && arguments[0] == "write") {
    return WriteTraining(arguments[1], arguments[2], arguments[3]);
  }
  if (arguments.size() == 4 && arguments[0] == "read") {
    return ReadTraining(arguments[1], arguments[2], arguments[3]);
  }
  return absl::InvalidArgumentError(
      "usage: move_training write|read small|vxm adam|adamw|sgd FILE");
}

}  // namespace
}  // namespace mir::checkpoint

int main(int argc, char** argv) {
  const absl::Status status =
      mir::checkpoint::Run(std::vector<std::string>(argv + 1, argv + argc));
  if (!status.ok()) std::cerr << "error: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
