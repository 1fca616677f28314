#include "mir/distributed/data_parallel.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string>
#include <thread>
#include <utility>

#include "mir/distributed/named_tensors.h"

namespace mir::distributed {
namespace {

void CheckSame(const NamedTensors& module, const NamedTensors& replica,
               size_t index) {
  TORCH_CHECK_VALUE(module.size() == replica.size(), "replica ", index, " has ",
                    replica.size(), " parameters and buffers, the module ",
                    module.size());
  for (size_t i = 0; i < module.size(); ++i) {
    const auto& [name, tensor] = module[i];
    const auto& [other_name, other] = replica[i];
    TORCH_CHECK_VALUE(name == other_name && tensor.sizes() == other.sizes() &&
                          tensor.scalar_type() == other.scalar_type(),
                      "replica ", index, " has ", other_name, " ",
                      other.scalar_type(), " ", other.sizes(), ", the module ",
                      name, " ", tensor.scalar_type(), " ", tensor.sizes());
  }
}

// The length that all inputs have along their first axis.
int64_t BatchSize(const std::vector<at::Tensor>& inputs) {
  TORCH_CHECK_VALUE(!inputs.empty(), "a forward needs an input, got none");
  for (const at::Tensor& input : inputs) {
    TORCH_CHECK_VALUE(
        input.dim() > 0 && input.size(0) > 0 &&
            input.size(0) == inputs[0].size(0),
        "wanted inputs of one batch size (repeat a hyperparameter to [B, 1]), "
        "got ",
        inputs[0].sizes(), " and ", input.sizes());
  }
  return inputs[0].size(0);
}

// The weights, buffers and modes that `module` has now.
void Update(torch::nn::Module& replica, const torch::nn::Module& module) {
  const at::NoGradGuard no_grad;
  const NamedTensors from = AllTensors(module);
  const NamedTensors to = AllTensors(replica);
  for (size_t i = 0; i < from.size(); ++i) {
    at::Tensor tensor = to[i].second;
    tensor.copy_(from[i].second, /*non_blocking=*/true);
    if (tensor.is_leaf()) {
      tensor.requires_grad_(from[i].second.requires_grad());
    }
  }
  replica.train(module.is_training());
}

// How often each buffer was written to.
std::vector<uint32_t> Versions(const NamedTensors& buffers) {
  std::vector<uint32_t> versions;
  for (const auto& item : buffers) versions.push_back(item.second._version());
  return versions;
}

at::Tensor Join(std::vector<at::Tensor> parts, const at::Device& device) {
  for (at::Tensor& part : parts) {
    if (part.dim() == 0) part = part.unsqueeze(0);
    part = part.to(device);
  }
  return at::cat(parts, 0);
}

}  // namespace

std::vector<at::Device> ConsecutiveDevices(const at::Device& first, int count) {
  std::vector<at::Device> devices;
  for (int i = 0; i < count; ++i) {
    devices.push_back(
        first.is_cpu() ? first
                       : at::Device(first.type(), static_cast<at::DeviceIndex>(
                                                      first.index() + i)));
  }
  return devices;
}

DataParallel::DataParallel(std::shared_ptr<torch::nn::Module> module,
                           const ReplicaFactory& factory,
                           std::vector<at::Device> devices)
    : devices_(std::move(devices)) {
  TORCH_CHECK_VALUE(!devices_.empty(),
                    "data parallelism needs a device, got none");
  const NamedTensors tensors = AllTensors(*module);
  for (const auto& [name, tensor] : tensors) {
    TORCH_CHECK_VALUE(tensor.device() == devices_[0],
                      "wanted the module on the first device, ", devices_[0],
                      ", but ", name, " is on ", tensor.device());
  }
  replicas_.push_back(std::move(module));
  for (size_t i = 1; i < devices_.size(); ++i) {
    std::shared_ptr<torch::nn::Module> replica = factory();
    CheckSame(tensors, AllTensors(*replica), i);
    replica->to(devices_[i]);
    replicas_.push_back(std::move(replica));
  }
}

std::vector<at::Tensor> DataParallel::Forward(
    const std::vector<at::Tensor>& inputs, const ReplicaForward& forward) {
  const int64_t batch = BatchSize(inputs);
  const auto count = static_cast<int64_t>(replicas_.size());
  const int64_t part = (batch + count - 1) / count;
  const int64_t parts = (batch + part - 1) / part;

  std::vector<std::vector<at::Tensor>> outputs(parts);
  std::vector<std::exception_ptr> errors(parts);
  const at::ThreadLocalState caller;
  const auto run = [&](int64_t i) {
    const at::ThreadLocalStateGuard as_caller(caller);
    try {
      std::vector<at::Tensor> own;
      for (const at::Tensor& input : inputs) {
        own.push_back(input.slice(0, i * part, std::min(batch, (i + 1) * part))
                          .to(devices_[i]));
      }
      outputs[i] = forward(*replicas_[i], own);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };

  const NamedTensors buffers = Buffers(*replicas_[0]);
  const std::vector<uint32_t> before = Versions(buffers);
  for (int64_t i = 1; i < parts; ++i) Update(*replicas_[i], *replicas_[0]);
  std::vector<std::thread> threads;
  for (int64_t i = 1; i < parts; ++i) threads.emplace_back(run, i);
  run(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }

  const std::vector<uint32_t> after = Versions(buffers);
  for (size_t i = 0; i < buffers.size(); ++i) {
    TORCH_CHECK_VALUE(before[i] == after[i], "forward changes the buffer ",
                      buffers[i].first,
                      ", whose changes would be lost on all replicas but the "
                      "first; train this module with one process per device");
  }
  std::vector<at::Tensor> joined;
  for (size_t k = 0; k < outputs[0].size(); ++k) {
    std::vector<at::Tensor> column;
    for (const std::vector<at::Tensor>& output : outputs) {
      TORCH_CHECK_VALUE(output.size() == outputs[0].size(),
                        "wanted as many outputs from each replica, got ",
                        outputs[0].size(), " and ", output.size());
      column.push_back(output[k]);
    }
    joined.push_back(Join(std::move(column), devices_[0]));
  }
  return joined;
}

void DataParallel::AfterBackward() {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> parameters = replicas_[0]->parameters();
  for (size_t i = 1; i < replicas_.size(); ++i) {
    const std::vector<at::Tensor> own = replicas_[i]->parameters();
    for (size_t k = 0; k < parameters.size(); ++k) {
      at::Tensor& gradient = own[k].mutable_grad();
      if (!gradient.defined()) continue;
      at::Tensor& sum = parameters[k].mutable_grad();
      const at::Tensor moved = gradient.to(devices_[0]);
      if (sum.defined()) {
        sum.add_(moved);
      } else {
        sum = moved;
      }
      gradient.reset();
    }
  }
}

}  // namespace mir::distributed
