#include "mir/precision/grad_scaler.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/optim/optimizer.h>

#include <cmath>
#include <utility>
#include <vector>

namespace mir::precision {
namespace {

void CheckRanges(double scale, double growth_factor, double backoff_factor,
                 int64_t growth_interval) {
  TORCH_CHECK_VALUE(scale > 0 && std::isfinite(scale),
                    "GradScaler: wanted a positive, finite scale, got ", scale);
  TORCH_CHECK_VALUE(growth_factor > 1 && std::isfinite(growth_factor),
                    "GradScaler: wanted a growth factor over 1, got ",
                    growth_factor);
  TORCH_CHECK_VALUE(backoff_factor > 0 && backoff_factor < 1,
                    "GradScaler: wanted a backoff factor between 0 and 1, got ",
                    backoff_factor);
  TORCH_CHECK_VALUE(growth_interval > 0,
                    "GradScaler: wanted a positive growth interval, got ",
                    growth_interval);
}

}  // namespace

bool NeedsGradScaler(Precision precision, c10::DeviceType device_type) {
  return precision == Precision::kFloat16 &&
         device_type == c10::DeviceType::CUDA;
}

GradScaler::GradScaler(GradScalerOptions options)
    : options_(std::move(options)) {
  CheckRanges(options_.init_scale, options_.growth_factor,
              options_.backoff_factor, options_.growth_interval);
  scale_ = at::full({}, options_.init_scale, at::kFloat);
  growth_tracker_ = at::zeros({}, at::kInt);
}

void GradScaler::MoveScaleTo(const at::Device& device) {
  if (scale_.device() == device) return;
  scale_ = scale_.to(device);
  growth_tracker_ = growth_tracker_.to(device);
}

at::Tensor GradScaler::Scale(const at::Tensor& loss) {
  if (!options_.enabled) return loss;
  // All losses of a step share the scale's tensor.
  if (records_.empty()) MoveScaleTo(loss.device());
  return loss * scale_.to(loss.device());
}

void GradScaler::Unscale(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  if (const auto record = records_.find(&optimizer); record != records_.end()) {
    TORCH_CHECK(record->second.stage != Stage::kStepped,
                "GradScaler: Unscale was called after Step; call Update first");
    TORCH_CHECK(false,
                "GradScaler: Unscale was called twice for one optimizer; call "
                "Update between steps");
  }

  const at::NoGradGuard no_grad;
  std::map<std::pair<at::Device, at::ScalarType>, std::vector<at::Tensor>,
           bool (*)(const std::pair<at::Device, at::ScalarType>&,
                    const std::pair<at::Device, at::ScalarType>&)>
      groups([](const auto& a, const auto& b) {
        return std::make_tuple(a.first.type(), a.first.index(), a.second) <
               std::make_tuple(b.first.type(), b.first.index(), b.second);
      });
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      TORCH_CHECK_VALUE(gradient.scalar_type() != at::kHalf,
                        "GradScaler: wanted float32 gradients, got float16 "
                        "ones; keep the weights in float32 and use Autocast");
      TORCH_CHECK_VALUE(!gradient.is_sparse(),
                        "GradScaler: wanted dense gradients, got sparse ones");
      groups[{gradient.device(), gradient.scalar_type()}].push_back(gradient);
    }
  }
  TORCH_CHECK(!groups.empty(),
              "GradScaler: no parameter of the optimizer has a gradient; call "
              "backward on the scaled loss first");

  // The reciprocal of a power of two is exact; of others, rounded once.
  const at::Tensor inverse = scale_.to(at::kDouble).reciprocal().to(at::kFloat);
  at::Tensor found_inf = at::zeros({}, scale_.options());
  for (auto& [key, gradients] : groups) {
    at::Tensor found = at::zeros({}, found_inf.options().device(key.first));
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found,
                                                   inverse.to(key.first));
    found_inf.add_(found.to(found_inf.device()));
  }
  records_[&optimizer] = {Stage::kUnscaled, found_inf};
}

bool GradScaler::Step(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) {
    optimizer.step();
    return true;
  }
  auto record = records_.find(&optimizer);
  if (record == records_.end()) {
    Unscale(optimizer);
    record = records_.find(&optimizer);
  }
  TORCH_CHECK(record->second.stage != Stage::kStepped,
              "GradScaler: Step was called twice for one optimizer; call "
              "Update between steps");
  bool found = record->second.found_inf.item<float>() != 0;
  if (options_.agree) {
    found = options_.agree(found);
    record->second.found_inf.fill_(found ? 1 : 0);
  }
  if (!found) optimizer.step();
  record->second.stage = Stage::kStepped;
  return !found;
}

void GradScaler::Update() {
  if (!options_.enabled) return;
  TORCH_CHECK(!records_.empty(),
              "GradScaler: no optimizer was stepped since the last Update");
  const at::NoGradGuard no_grad;
  at::Tensor found_inf = at::zeros({}, scale_.options());
  for (const auto& [optimizer, record] : records_) {
    found_inf.add_(record.found_inf);
  }
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf,
                         options_.growth_factor, options_.backoff_factor,
                         options_.growth_interval);
  records_.clear();
}

double GradScaler::scale() const {
  return options_.enabled ? scale_.item<float>() : 1.0;
}

GradScalerState GradScaler::state() const {
  GradScalerState state;
  state.scale = scale();
  state.growth_factor = options_.growth_factor;
  state.backoff_factor = options_.backoff_factor;
  state.growth_interval = options_.growth_interval;
  state.growth_tracker = growth_tracker_.item<int>();
  return state;
}

void GradScaler::set_state(const GradScalerState& state) {
  if (!options_.enabled) return;
  CheckRanges(state.scale, state.growth_factor, state.backoff_factor,
              state.growth_interval);
  TORCH_CHECK_VALUE(
      state.growth_tracker >= 0 && state.growth_tracker <= INT32_MAX,
      "GradScaler: wanted a growth tracker of at least 0, got ",
      state.growth_tracker);
  options_.growth_factor = state.growth_factor;
  options_.backoff_factor = state.backoff_factor;
  options_.growth_interval = state.growth_interval;
  const at::NoGradGuard no_grad;
  scale_.fill_(state.scale);
  growth_tracker_.fill_(state.growth_tracker);
}

}  // namespace mir::precision
