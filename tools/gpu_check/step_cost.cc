#include "tools/gpu_check/step_cost.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/rand.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <algorithm>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "mir/base/catch_torch.h"
#include "mir/base/status_macros.h"
#include "mir/geometry/warp.h"
#include "mir/losses/gradient_penalty.h"
#include "mir/losses/local_ncc.h"
#include "mir/models/model_list.h"
#include "mir/models/registry.h"
#include "mir/precision/autocast.h"
#include "mir/precision/grad_scaler.h"

namespace mir::tools {
namespace {

constexpr double kMib = 1 << 20;

absl::Status Measure(const std::string& configuration,
                     const std::vector<int64_t>& size,
                     precision::Precision precision, const at::Device& device,
                     int steps, StepCost* cost) {
  torch::manual_seed(5);
  MIR_ASSIGN_OR_RETURN(
      const nlohmann::json config,
      models::ModelConfig(
          cost->model, configuration,
          {absl::StrCat("img_size=[", absl::StrJoin(size, ","), "]")}));
  MIR_ASSIGN_OR_RETURN(const std::shared_ptr<models::RegistrationModel> model,
                       models::BuildModel(cost->model, config));
  model->to(device);
  model->train();
  std::vector<int64_t> shape = {1, 1};
  shape.insert(shape.end(), size.begin(), size.end());
  const at::Tensor moving = at::rand(shape, at::device(device));
  const at::Tensor fixed = at::rand(shape, at::device(device));
  const losses::LocalNcc similarity;
  const losses::GradientPenalty smoothness;
  torch::optim::AdamW optimizer(model->parameters(),
                                torch::optim::AdamWOptions(1e-4).amsgrad(true));
  precision::GradScalerOptions scaling;
  scaling.enabled = precision::NeedsGradScaler(precision, device.type());
  precision::GradScaler scaler(scaling);

  const auto wait = [&] {
    if (device.is_cuda()) at::accelerator::synchronizeDevice(device.index());
  };
  const auto step = [&] {
    optimizer.zero_grad();
    at::Tensor loss;
    {
      const precision::Autocast autocast(device.type(), precision);
      const models::Registration found = model->Register(moving, fixed);
      loss = similarity(fixed, geometry::Warp(moving, found.displacement)) +
             smoothness(found.regularized);
    }
    scaler.Scale(loss).backward();
    scaler.Step(optimizer);
    scaler.Update();
    wait();
  };
  if (device.is_cuda()) {
    at::accelerator::emptyCache();
    at::accelerator::resetPeakStats(device.index());
  }
  step();  // Brings memory, and chooses algorithms.
  std::vector<double> times;
  for (int i = 0; i < steps; ++i) {
    const absl::Time begin = absl::Now();
    step();
    times.push_back(absl::ToDoubleMilliseconds(absl::Now() - begin));
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2,
                   times.end());
  cost->milliseconds = times[times.size() / 2];
  if (device.is_cuda()) {
    using at::CachingAllocator::StatType;
    cost->peak_mib =
        at::accelerator::getDeviceStats(device.index())
            .allocated_bytes[static_cast<size_t>(StatType::AGGREGATE)]
            .peak /
        kMib;
  }
  return absl::OkStatus();
}

}  // namespace

StepCost MeasureStepCost(const std::string& model,
                         const std::string& configuration,
                         const std::vector<int64_t>& size,
                         precision::Precision precision,
                         const at::Device& device, int steps) {
  StepCost cost;
  cost.model = model;
  cost.precision = std::string(precision::PrecisionName(precision));
  const absl::Status status = CatchTorch([&] {
    return Measure(configuration, size, precision, device, steps, &cost);
  });
  if (!status.ok()) cost.fault = std::string(status.message());
  return cost;
}

}  // namespace mir::tools
