#include "mir/models/layers/batch_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <vector>

#include "mir/autograd/recompute.h"
#include "mir/models/layers/weights.h"
#include "mir/precision/fp32_region.h"

namespace mir::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kMomentum = 0.1;
constexpr double kEps = 1e-5;
constexpr char kSum[] = "sum";

struct SumHolder : torch::CustomClassHolder {
  explicit SumHolder(SumOverRanks sum) : sum(std::move(sum)) {}
  const SumOverRanks sum;
};

constexpr double kFewest = 2;  // Values per channel that have a variance.

void CheckCount(double count) {
  TORCH_CHECK_VALUE(count >= kFewest,
                    "batch normalisation wants more than one value per channel "
                    "in training, over all ranks, not ",
                    count);
}

// All axes but that of the channels.
std::vector<int64_t> ReducedAxes(const at::Tensor& x) {
  std::vector<int64_t> axes;
  for (int64_t axis = 0; axis < x.dim(); ++axis) {
    if (axis != 1) axes.push_back(axis);
  }
  return axes;
}

// [C] as [1, C, 1, ...], to stand beside `x`.
at::Tensor Beside(const at::Tensor& x, const at::Tensor& per_channel) {
  std::vector<int64_t> shape(x.dim(), 1);
  shape[1] = -1;
  return per_channel.view(shape);
}

// x [N, C, ...] with each channel's mean and variance over all ranks taken
// away; and those, and the count, as [2 C + 1].
class NormalizeOverRanks
    : public torch::autograd::Function<NormalizeOverRanks> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const c10::intrusive_ptr<SumHolder>& holder) {
    const int64_t channels = x.size(1);
    const std::vector<int64_t> axes = ReducedAxes(x);
    at::Tensor sums = at::cat(
        {x.sum(axes), at::full({1}, x.numel() / channels, x.options())});
    holder->sum(sums);
    const at::Tensor count = sums.slice(0, channels);
    CheckCount(count.item<double>());
    const at::Tensor mean = sums.slice(0, 0, channels) / count;
    const at::Tensor centred = x - Beside(x, mean);
    at::Tensor squares = centred.square().sum(axes);
    holder->sum(squares);
    const at::Tensor variance = squares / count;
    const at::Tensor scale = at::rsqrt(variance + kEps);
    const at::Tensor normal = centred * Beside(x, scale);

    context->save_for_backward({normal, scale, count});
    context->saved_data[kSum] = c10::IValue::make_capsule(holder);
    const at::Tensor statistics = at::cat({mean, variance, count});
    context->mark_non_differentiable({statistics});
    return {normal, statistics};
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &normal = saved[0], &scale = saved[1], &count = saved[2];
    const at::Tensor& gradient = gradients[0];
    const auto holder = c10::static_intrusive_pointer_cast<SumHolder>(
        context->saved_data[kSum].toCapsule());
    const std::vector<int64_t> axes = ReducedAxes(normal);
    const int64_t channels = normal.size(1);
    at::Tensor sums =
        at::cat({gradient.sum(axes), (gradient * normal).sum(axes)});
    holder->sum(sums);
    sums = sums / count;
    return {(gradient - Beside(normal, sums.slice(0, 0, channels)) -
             normal * Beside(normal, sums.slice(0, channels))) *
                Beside(normal, scale),
            at::Tensor()};
  }
};

}  // namespace

BatchNorm::BatchNorm(int64_t channels) : FloatingModule("BatchNorm") {
  weight = register_parameter("weight", NewWeight({channels}));
  bias = register_parameter("bias", NewWeight({channels}));
  InitConstant(weight, 1);
  InitConstant(bias, 0);
  running_mean = register_buffer("running_mean", at::zeros({channels}));
  running_var = register_buffer("running_var", at::ones({channels}));
  num_batches_tracked =
      register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
}

at::Tensor BatchNorm::forward(const at::Tensor& input) {
  TORCH_CHECK_VALUE(input.dim() >= 2 && input.size(1) == weight.size(0),
                    "batch normalisation of ", weight.size(0),
                    " channels wants [N, C, ...], not ", input.sizes());
  const bool update = is_training() && !autograd::IsRecomputing();
  if (update) num_batches_tracked.add_(1);
  if (!is_training() || !sum_over_ranks()) {
    CheckCount(is_training() ? input.numel() / input.size(1) : kFewest);
    return at::batch_norm(input, weight, bias, running_mean, running_var,
                          is_training(), update ? kMomentum : 0, kEps,
                          /*cudnn_enabled=*/true);
  }
  const precision::Fp32Region in_float32;
  const at::Tensor x = precision::ToComputeType(input);
  const int64_t channels = x.size(1);
  const variable_list result = NormalizeOverRanks::apply(
      x, c10::make_intrusive<SumHolder>(sum_over_ranks()));
  if (update) {
    const at::AutoGradMode no_gradients(false);
    const at::Tensor& statistics = result[1];
    const at::Tensor count = statistics.slice(0, 2 * channels);
    running_mean.lerp_(
        statistics.slice(0, 0, channels).to(running_mean.scalar_type()),
        kMomentum);
    running_var.lerp_(
        (statistics.slice(0, channels, 2 * channels) * count / (count - 1))
            .to(running_var.scalar_type()),
        kMomentum);
  }
  return (result[0] * Beside(x, precision::ToComputeType(weight)) +
          Beside(x, precision::ToComputeType(bias)))
      .to(input.scalar_type());
}

}  // namespace mir::models
