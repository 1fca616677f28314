#include "mir/checkpoint/optimizer_state.h"

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "mir/base/catch_torch.h"
#include "mir/base/status_macros.h"

namespace mir::checkpoint {
namespace {

using ::torch::optim::Adam;
using ::torch::optim::AdamOptions;
using ::torch::optim::AdamParamState;
using ::torch::optim::AdamW;
using ::torch::optim::AdamWOptions;
using ::torch::optim::AdamWParamState;
using ::torch::optim::Optimizer;
using ::torch::optim::OptimizerOptions;
using ::torch::optim::OptimizerParamState;
using ::torch::optim::SGD;
using ::torch::optim::SGDOptions;
using ::torch::optim::SGDParamState;

// Float32 holds every count up to here, as Python's step needs.
constexpr int64_t kExactInFloat = int64_t{1} << 24;

absl::Status Wrong(absl::string_view where, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the optimizer state does not fit: ", where, ": ", what));
}

absl::Status Unsupported() {
  return absl::InvalidArgumentError(
      "only the states of torch::optim::Adam, AdamW and SGD are saved and "
      "loaded");
}

at::Tensor StepTensor(int64_t step) {
  return torch::scalar_tensor(static_cast<double>(step), step <= kExactInFloat
                                                             ? torch::kFloat
                                                             : torch::kDouble);
}

// Reading entries of a dict, naming where.

absl::StatusOr<const Value*> Entry(const Value& dict, absl::string_view key,
                                   absl::string_view where) {
  if (dict.dict() == nullptr) {
    return Wrong(where,
                 absl::StrCat("a dict is wanted, not ", dict.Describe()));
  }
  const Value* value = dict.Find(key);
  if (value == nullptr) {
    return Wrong(where, absl::StrCat("'", key, "' is wanted, its keys are ",
                                     dict.dict()->DescribeKeys()));
  }
  return value;
}

// A number, or a tensor that holds one, as Python allows for lr and step.
absl::StatusOr<double> NumberOf(const Value& value, absl::string_view key,
                                absl::string_view where) {
  if (const std::optional<double> number = value.number()) return *number;
  if (value.tensor() != nullptr && value.tensor()->numel() == 1) {
    return value.tensor()->item<double>();
  }
  return Wrong(where, absl::StrCat("'", key, "' should be a number, not ",
                                   value.Describe()));
}

absl::StatusOr<double> NumberAt(const Value& dict, absl::string_view key,
                                absl::string_view where) {
  MIR_ASSIGN_OR_RETURN(const Value* value, Entry(dict, key, where));
  return NumberOf(*value, key, where);
}

bool IsTrue(const Value& dict, absl::string_view key) {
  const Value* value = dict.Find(key);
  return value != nullptr && value->boolean() == true;
}

// A tensor of the parameter's shape, copied to its dtype and device.
absl::StatusOr<at::Tensor> TensorAt(const Value& dict, absl::string_view key,
                                    const at::Tensor& parameter,
                                    absl::string_view where) {
  MIR_ASSIGN_OR_RETURN(const Value* value, Entry(dict, key, where));
  const at::Tensor* tensor = value->tensor();
  if (tensor == nullptr || tensor->sizes() != parameter.sizes()) {
    return Wrong(where,
                 absl::StrCat("'", key, "' should be a tensor [",
                              absl::StrJoin(parameter.sizes(), ", "),
                              "] as its parameter, not ", value->Describe()));
  }
  return tensor->detach().to(parameter.options().requires_grad(false),
                             /*non_blocking=*/false, /*copy=*/true);
}

// Adam and AdamW differ in their types and in one entry.
template <typename Options, typename ParamState>
struct AdamLayout {
  static constexpr bool kDecoupled = std::is_same_v<Options, AdamWOptions>;

  static Dict WriteOptions(const OptimizerOptions& any) {
    const auto& options = static_cast<const Options&>(any);
    Dict group;
    group.Set("lr", options.lr());
    group.Set("betas", Value::Tuple({std::get<0>(options.betas()),
                                     std::get<1>(options.betas())}));
    group.Set("eps", options.eps());
    group.Set("weight_decay", options.weight_decay());
    group.Set("amsgrad", options.amsgrad());
    group.Set("maximize", false);
    group.Set("foreach", Value());
    group.Set("capturable", false);
    group.Set("differentiable", false);
    group.Set("fused", Value());
    group.Set("decoupled_weight_decay", kDecoupled);
    return group;
  }

  static Dict WriteParam(const OptimizerParamState& any) {
    const auto& state = static_cast<const ParamState&>(any);
    Dict written;
    written.Set("step", StepTensor(state.step()));
    written.Set("exp_avg", state.exp_avg());
    written.Set("exp_avg_sq", state.exp_avg_sq());
    if (state.max_exp_avg_sq().defined()) {
      written.Set("max_exp_avg_sq", state.max_exp_avg_sq());
    }
    return written;
  }

  static absl::StatusOr<std::unique_ptr<OptimizerOptions>> ReadOptions(
      const Value& group, absl::string_view where) {
    auto options = std::make_unique<Options>();
    MIR_ASSIGN_OR_RETURN(const Value* betas, Entry(group, "betas", where));
    if (betas->items() == nullptr || betas->items()->size() != 2) {
      return Wrong(where, absl::StrCat("'betas' should be two numbers, not ",
                                       betas->Describe()));
    }
    MIR_ASSIGN_OR_RETURN(const double beta1,
                         NumberOf((*betas->items())[0], "betas", where));
    MIR_ASSIGN_OR_RETURN(const double beta2,
                         NumberOf((*betas->items())[1], "betas", where));
    options->betas({beta1, beta2});
    MIR_ASSIGN_OR_RETURN(const double lr, NumberAt(group, "lr", where));
    options->lr(lr);
    MIR_ASSIGN_OR_RETURN(const double eps, NumberAt(group, "eps", where));
    options->eps(eps);
    MIR_ASSIGN_OR_RETURN(const double weight_decay,
                         NumberAt(group, "weight_decay", where));
    options->weight_decay(weight_decay);
    options->amsgrad(IsTrue(group, "amsgrad"));
    const Value* decoupled = group.Find("decoupled_weight_decay");
    if (decoupled != nullptr && decoupled->boolean() == !kDecoupled) {
      return Wrong(where, kDecoupled ? "a state of AdamW is wanted, this is "
                                       "one of Adam"
                                     : "a state of Adam is wanted, this is one "
                                       "of AdamW");
    }
    return options;
  }

  static absl::StatusOr<std::unique_ptr<OptimizerParamState>> ReadParam(
      const Value& saved, const OptimizerOptions& options,
      const at::Tensor& parameter, absl::string_view where) {
    auto state = std::make_unique<ParamState>();
    MIR_ASSIGN_OR_RETURN(const double step, NumberAt(saved, "step", where));
    state->step(std::llround(step));
    MIR_ASSIGN_OR_RETURN(at::Tensor average,
                         TensorAt(saved, "exp_avg", parameter, where));
    state->exp_avg(std::move(average));
    MIR_ASSIGN_OR_RETURN(at::Tensor square,
                         TensorAt(saved, "exp_avg_sq", parameter, where));
    state->exp_avg_sq(std::move(square));
    if (static_cast<const Options&>(options).amsgrad()) {
      MIR_ASSIGN_OR_RETURN(at::Tensor largest,
                           TensorAt(saved, "max_exp_avg_sq", parameter, where));
      state->max_exp_avg_sq(std::move(largest));
    }
    return state;
  }
};

struct SgdLayout {
  static Dict WriteOptions(const OptimizerOptions& any) {
    const auto& options = static_cast<const SGDOptions&>(any);
    Dict group;
    group.Set("lr", options.lr());
    group.Set("momentum", options.momentum());
    group.Set("dampening", options.dampening());
    group.Set("weight_decay", options.weight_decay());
    group.Set("nesterov", options.nesterov());
    group.Set("maximize", false);
    group.Set("foreach", Value());
    group.Set("differentiable", false);
    group.Set("fused", Value());
    return group;
  }

  static Dict WriteParam(const OptimizerParamState& any) {
    Dict written;
    written.Set("momentum_buffer",
                static_cast<const SGDParamState&>(any).momentum_buffer());
    return written;
  }

  static absl::StatusOr<std::unique_ptr<OptimizerOptions>> ReadOptions(
      const Value& group, absl::string_view where) {
    MIR_ASSIGN_OR_RETURN(const double momentum,
                         NumberAt(group, "momentum", where));
    MIR_ASSIGN_OR_RETURN(const double lr, NumberAt(group, "lr", where));
    auto options = std::make_unique<SGDOptions>(lr);
    options->momentum(momentum);
    MIR_ASSIGN_OR_RETURN(const double dampening,
                         NumberAt(group, "dampening", where));
    options->dampening(dampening);
    MIR_ASSIGN_OR_RETURN(const double weight_decay,
                         NumberAt(group, "weight_decay", where));
    options->weight_decay(weight_decay);
    options->nesterov(IsTrue(group, "nesterov"));
    return options;
  }

  // Null where there is none: momentum starts with the next gradient.
  static absl::StatusOr<std::unique_ptr<OptimizerParamState>> ReadParam(
      const Value& saved, const OptimizerOptions&, const at::Tensor& parameter,
      absl::string_view where) {
    const Value* buffer = saved.Find("momentum_buffer");
    if (buffer == nullptr || buffer->is_none()) return nullptr;
    auto state = std::make_unique<SGDParamState>();
    MIR_ASSIGN_OR_RETURN(at::Tensor tensor,
                         TensorAt(saved, "momentum_buffer", parameter, where));
    state->momentum_buffer(std::move(tensor));
    return state;
  }
};

template <typename Layout>
Value Write(const Optimizer& optimizer) {
  Dict states;
  std::vector<Value> groups;
  int64_t number = 0;
  for (const auto& group : optimizer.param_groups()) {
    Dict written = Layout::WriteOptions(group.options());
    std::vector<Value> numbers;
    for (const at::Tensor& parameter : group.params()) {
      const auto state =
          optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (state != optimizer.state().end()) {
        states.Set(number, Layout::WriteParam(*state->second));
      }
      numbers.push_back(number++);
    }
    written.Set("params", Value::List(std::move(numbers)));
    groups.push_back(std::move(written));
  }
  Dict all;
  all.Set("state", std::move(states));
  all.Set("param_groups", Value::List(std::move(groups)));
  return all;
}

template <typename Layout>
absl::Status Read(Optimizer& optimizer, const Value& saved) {
  MIR_ASSIGN_OR_RETURN(const Value* states,
                       Entry(saved, "state", "the checkpoint"));
  MIR_ASSIGN_OR_RETURN(const Value* groups,
                       Entry(saved, "param_groups", "the checkpoint"));
  if (states->dict() == nullptr || groups->items() == nullptr) {
    return Wrong("the checkpoint",
                 "'state' should be a dict and 'param_groups' a list");
  }
  auto& own_groups = optimizer.param_groups();
  if (groups->items()->size() != own_groups.size()) {
    return Wrong("the checkpoint",
                 absl::StrCat(own_groups.size(),
                              " groups of parameters are wanted, it has ",
                              groups->items()->size()));
  }
  // All is read before anything is changed.
  std::vector<std::unique_ptr<OptimizerOptions>> all_options;
  std::vector<std::pair<void*, std::unique_ptr<OptimizerParamState>>>
      all_states;
  for (size_t i = 0; i < own_groups.size(); ++i) {
    const std::string where = absl::StrCat("group ", i);
    const Value& group = (*groups->items())[i];
    MIR_ASSIGN_OR_RETURN(const Value* numbers, Entry(group, "params", where));
    const std::vector<at::Tensor>& parameters = own_groups[i].params();
    if (numbers->items() == nullptr ||
        numbers->items()->size() != parameters.size()) {
      return Wrong(where, absl::StrCat(parameters.size(),
                                       " parameters are wanted, it has ",
                                       numbers->Describe()));
    }
    if (IsTrue(group, "maximize")) {
      return Wrong(where, "'maximize' is not supported");
    }
    MIR_ASSIGN_OR_RETURN(std::unique_ptr<OptimizerOptions> options,
                         Layout::ReadOptions(group, where));
    for (size_t k = 0; k < parameters.size(); ++k) {
      const std::optional<int64_t> number = (*numbers->items())[k].integer();
      if (!number.has_value()) {
        return Wrong(where, "'params' should be a list of numbers");
      }
      const Value* state = states->Find(*number);
      if (state == nullptr) continue;  // Not stepped yet.
      MIR_ASSIGN_OR_RETURN(
          std::unique_ptr<OptimizerParamState> read,
          Layout::ReadParam(*state, *options, parameters[k],
                            absl::StrCat("parameter ", *number)));
      if (read != nullptr) {
        all_states.emplace_back(parameters[k].unsafeGetTensorImpl(),
                                std::move(read));
      }
    }
    all_options.push_back(std::move(options));
  }
  for (size_t i = 0; i < own_groups.size(); ++i) {
    own_groups[i].set_options(std::move(all_options[i]));
  }
  optimizer.state().clear();
  for (auto& [parameter, state] : all_states) {
    optimizer.state()[parameter] = std::move(state);
  }
  return absl::OkStatus();
}

using AdamState = AdamLayout<AdamOptions, AdamParamState>;
using AdamWState = AdamLayout<AdamWOptions, AdamWParamState>;

}  // namespace

absl::StatusOr<Value> OptimizerState(const Optimizer& optimizer) {
  if (dynamic_cast<const Adam*>(&optimizer) != nullptr) {
    return Write<AdamState>(optimizer);
  }
  if (dynamic_cast<const AdamW*>(&optimizer) != nullptr) {
    return Write<AdamWState>(optimizer);
  }
  if (dynamic_cast<const SGD*>(&optimizer) != nullptr) {
    return Write<SgdLayout>(optimizer);
  }
  return Unsupported();
}

absl::Status LoadOptimizerState(Optimizer& optimizer, const Value& state) {
  return CatchTorch([&] {
    const at::NoGradGuard no_gradients;
    if (dynamic_cast<Adam*>(&optimizer) != nullptr) {
      return Read<AdamState>(optimizer, state);
    }
    if (dynamic_cast<AdamW*>(&optimizer) != nullptr) {
      return Read<AdamWState>(optimizer, state);
    }
    if (dynamic_cast<SGD*>(&optimizer) != nullptr) {
      return Read<SgdLayout>(optimizer, state);
    }
    return Unsupported();
  });
}

}  // namespace mir::checkpoint
