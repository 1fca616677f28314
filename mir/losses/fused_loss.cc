#include "mir/losses/fused_loss.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <array>
#include <mutex>
#include <optional>
#include <utility>

namespace mir::losses {
namespace {

// What a graph keeps between the forward and the backward pass.
struct Kept : torch::CustomClassHolder {
  const char* loss;
  FusedKernel kernel;
  std::array<bool, 2> needed;
  std::mutex mutex;
  // Until a backward pass takes them.
  std::array<at::Tensor, 2> gradients;
  FusedResult result = 0;
};

std::array<at::Tensor, 2> Empty(const at::Tensor& like,
                                const std::array<bool, 2>& needed) {
  std::array<at::Tensor, 2> tensors;
  for (int which = 0; which < 2; ++which) {
    if (needed[which]) tensors[which] = at::empty_like(like);
  }
  return tensors;
}

class Fused : public torch::autograd::Function<Fused> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context,
                            const at::Tensor& x,
                            const std::optional<at::Tensor>& y,
                            const c10::intrusive_ptr<Kept>& kept) {
    const at::Tensor own_x = x.contiguous();
    const at::Tensor own_y = y ? y->contiguous() : at::Tensor();
    kept->gradients = Empty(own_x, kept->needed);
    kept->result =
        kept->kernel(own_x, own_y, kept->gradients[0], kept->gradients[1]);
    const double value = kept->result.value;
    if (kept->needed[0] || kept->needed[1]) {
      context->save_for_backward({own_x, own_y});
      context->saved_data["kept"] = c10::IValue::make_capsule(
          c10::intrusive_ptr<torch::CustomClassHolder>(kept));
    }
    return at::full({}, value, x.options());
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      const torch::autograd::variable_list& gradients) {
    const torch::autograd::variable_list saved = context->get_saved_variables();
    Kept& kept = static_cast<Kept&>(*context->saved_data["kept"].toCapsule());
    TORCH_CHECK(!at::GradMode::is_enabled(), kept.loss,
                ": its gradient cannot be differentiated again on the CPU; "
                "leave create_graph off");
    std::array<at::Tensor, 2> own;
    FusedResult result = 0;
    {
      const std::lock_guard<std::mutex> lock(kept.mutex);
      own = std::exchange(kept.gradients, {});
      result = std::exchange(kept.result, 0);
    }
    if (!own[0].defined() && !own[1].defined()) {
      own = Empty(saved[0], kept.needed);
      result = kept.kernel(saved[0], saved[1], own[0], own[1]);
    }
    const double scale = gradients[0].item<double>();
    if (result.finish) {
      result.finish(saved[0], saved[1], scale, own[0], own[1]);
      return {own[0], own[1], at::Tensor()};
    }
    for (at::Tensor& one : own) {
      if (one.defined() && scale != 1) one.mul_(scale);
    }
    return {own[0], own[1], at::Tensor()};
  }
};

}  // namespace

at::Tensor FusedLoss(const char* loss, const at::Tensor& x, const at::Tensor& y,
                     FusedKernel kernel) {
  const bool gradients = at::GradMode::is_enabled();
  auto kept = c10::make_intrusive<Kept>();
  kept->loss = loss;
  kept->kernel = std::move(kernel);
  kept->needed = {gradients && x.requires_grad(),
                  gradients && y.defined() && y.requires_grad()};
  return Fused::apply(
      x, y.defined() ? std::optional<at::Tensor>(y) : std::nullopt, kept);
}

at::Tensor FusedLoss(
    const char* loss, const at::Tensor& x,
    std::function<double(const at::Tensor&, const at::Tensor&)> kernel) {
  return FusedLoss(
      loss, x, at::Tensor(),
      [kernel = std::move(kernel)](
          const at::Tensor& own, const at::Tensor&, const at::Tensor& gradient,
          const at::Tensor&) { return FusedResult(kernel(own, gradient)); });
}

}  // namespace mir::losses
