#include "mir/autograd/recompute.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/custom_class.h>

#include <mutex>
#include <unordered_set>
#include <utility>

namespace mir::autograd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using ManySegment = std::function<variable_list(const variable_list&)>;

constexpr char kReplay[] = "replay";

thread_local bool recomputing = false;

class RecomputingScope {
 public:
  RecomputingScope() : previous_(recomputing) { recomputing = true; }
  ~RecomputingScope() { recomputing = previous_; }
  RecomputingScope(const RecomputingScope&) = delete;
  RecomputingScope& operator=(const RecomputingScope&) = delete;

 private:
  const bool previous_;
};

struct AutocastState {
  bool enabled;
  at::ScalarType dtype;
};

AutocastState CurrentAutocast(at::DeviceType device) {
  return {at::autocast::is_autocast_enabled(device),
          at::autocast::get_autocast_dtype(device)};
}

void SetAutocast(at::DeviceType device, const AutocastState& state) {
  at::autocast::set_autocast_enabled(device, state.enabled);
  at::autocast::set_autocast_dtype(device, state.dtype);
}

// Sets autocast for a scope, on the CPU and on CUDA.
class AutocastScope {
 public:
  AutocastScope(const AutocastState& cpu, const AutocastState& cuda)
      : previous_cpu_(CurrentAutocast(at::kCPU)),
        previous_cuda_(CurrentAutocast(at::kCUDA)),
        previous_cache_(at::autocast::is_autocast_cache_enabled()) {
    SetAutocast(at::kCPU, cpu);
    SetAutocast(at::kCUDA, cuda);
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~AutocastScope() {
    SetAutocast(at::kCPU, previous_cpu_);
    SetAutocast(at::kCUDA, previous_cuda_);
    at::autocast::set_autocast_cache_enabled(previous_cache_);
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const AutocastState previous_cpu_, previous_cuda_;
  const bool previous_cache_;
};

// The default generators that a segment may draw from.
std::vector<at::Generator> Generators(const variable_list& inputs) {
  std::vector<at::Generator> generators = {
      at::globalContext().defaultGenerator(at::kCPU)};
  for (const at::Tensor& input : inputs) {
    if (!input.is_cuda()) continue;
    generators.push_back(at::globalContext().defaultGenerator(input.device()));
    break;
  }
  return generators;
}

at::Tensor StateOf(at::Generator& generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void SetState(at::Generator& generator, const at::Tensor& state) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

// Sets the generators' states for a scope.
class GeneratorScope {
 public:
  GeneratorScope(std::vector<at::Generator> generators,
                 const std::vector<at::Tensor>& states)
      : generators_(std::move(generators)) {
    for (size_t i = 0; i < generators_.size(); ++i) {
      previous_.push_back(StateOf(generators_[i]));
      SetState(generators_[i], states[i]);
    }
  }
  ~GeneratorScope() {
    for (size_t i = 0; i < generators_.size(); ++i) {
      SetState(generators_[i], previous_[i]);
    }
  }
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

 private:
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> previous_;
};

// What computing a segment again takes, but for the tensors.
struct Replay : torch::CustomClassHolder {
  ManySegment segment;
  size_t inputs = 0;  // The first tensors; the others are the parameters.
  AutocastState cpu, cuda;
  std::vector<at::Tensor> generator_states;
};

// A gradient that would go to a leaf other than the known ones would be lost.
void CheckLeaves(const variable_list& outputs,
                 const std::unordered_set<const void*>& known) {
  std::vector<torch::autograd::Node*> open;
  std::unordered_set<const torch::autograd::Node*> seen;
  const auto visit = [&](torch::autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  for (const at::Tensor& output : outputs) visit(output.grad_fn().get());
  while (!open.empty()) {
    torch::autograd::Node* const node = open.back();
    open.pop_back();
    if (const auto* leaf =
            dynamic_cast<torch::autograd::AccumulateGrad*>(node)) {
      TORCH_CHECK_VALUE(
          known.count(leaf->variable.unsafeGetTensorImpl()) != 0,
          "a segment that is recomputed uses a tensor ", leaf->variable.sizes(),
          " that requires gradients and is not among its `parameters`");
    }
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      visit(edge.function.get());
    }
  }
}

class RecomputeFunction : public torch::autograd::Function<RecomputeFunction> {
 public:
  // `tensors`: the inputs, then the parameters.
  static variable_list forward(AutogradContext* context,
                               const c10::intrusive_ptr<Replay>& replay,
                               at::TensorList tensors) {
    const variable_list inputs(tensors.begin(),
                               tensors.begin() + replay->inputs);
    for (at::Generator& generator : Generators(inputs)) {
      replay->generator_states.push_back(StateOf(generator));
    }
    context->saved_data[kReplay] = c10::IValue::make_capsule(replay);
    context->save_for_backward(tensors.vec());
    context->set_materialize_grads(false);
    const AutocastScope autocast(replay->cpu, replay->cuda);
    return replay->segment(inputs);
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& output_gradients) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !at::GradMode::is_enabled(),
        "a recomputed segment cannot be differentiated twice");
    const auto replay = c10::static_intrusive_pointer_cast<Replay>(
        context->saved_data[kReplay].toCapsule());
    const variable_list tensors = context->get_saved_variables();

    variable_list inputs, wanted;
    std::vector<size_t> position;  // In `tensors`, of each of `wanted`.
    std::unordered_set<const void*> leaves;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const bool needed = tensors[i].requires_grad();
      at::Tensor tensor = tensors[i];
      if (i < replay->inputs) {
        tensor = tensor.detach().requires_grad_(needed);
        inputs.push_back(tensor);
      }
      if (!needed) continue;
      wanted.push_back(tensor);
      position.push_back(i);
      leaves.insert(tensor.unsafeGetTensorImpl());
    }

    variable_list outputs;
    {
      const at::AutoGradMode with_graph(true);
      const RecomputingScope scope;
      const AutocastScope autocast(replay->cpu, replay->cuda);
      const GeneratorScope generators(Generators(inputs),
                                      replay->generator_states);
      outputs = replay->segment(inputs);
    }

    variable_list roots, root_gradients;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!output_gradients[i].defined() || !outputs[i].requires_grad()) {
        continue;
      }
      roots.push_back(outputs[i]);
      root_gradients.push_back(output_gradients[i]);
    }
    // One for the replay, which is no tensor.
    variable_list gradients(1 + tensors.size());
    if (roots.empty() || wanted.empty()) return gradients;
    CheckLeaves(roots, leaves);
    const variable_list found = torch::autograd::grad(
        roots, wanted, root_gradients, /*retain_graph=*/false,
        /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t i = 0; i < found.size(); ++i) {
      gradients[1 + position[i]] = found[i];
    }
    return gradients;
  }
};

}  // namespace

bool IsRecomputing() { return recomputing; }

variable_list Recompute(ManySegment segment, const variable_list& inputs,
                        const variable_list& parameters) {
  variable_list tensors = inputs;
  bool required = false;
  for (const at::Tensor& input : inputs) {
    TORCH_CHECK_VALUE(input.defined(), "an input of a segment is undefined");
    required |= input.requires_grad();
  }
  std::unordered_set<const void*> seen;
  for (const at::Tensor& parameter : parameters) {
    TORCH_CHECK_VALUE(parameter.defined(),
                      "a parameter of a segment is undefined");
    if (!parameter.requires_grad() ||
        !seen.insert(parameter.unsafeGetTensorImpl()).second) {
      continue;
    }
    tensors.push_back(parameter);
    required = true;
  }
  if (!required || !at::GradMode::is_enabled()) return segment(inputs);

  auto replay = c10::make_intrusive<Replay>();
  replay->segment = std::move(segment);
  replay->inputs = inputs.size();
  replay->cpu = CurrentAutocast(at::kCPU);
  replay->cuda = CurrentAutocast(at::kCUDA);
  // As a TensorList: of other containers no variable would be found.
  return RecomputeFunction::apply(replay, at::TensorList(tensors));
}

at::Tensor Recompute(Segment segment, const at::Tensor& input,
                     const variable_list& parameters) {
  return Recompute(
      [segment = std::move(segment)](const variable_list& inputs) {
        return variable_list{segment(inputs[0])};
      },
      variable_list{input}, parameters)[0];
}

}  // namespace mir::autograd
