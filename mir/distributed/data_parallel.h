#ifndef MIR_DISTRIBUTED_DATA_PARALLEL_H_
#define MIR_DISTRIBUTED_DATA_PARALLEL_H_

#include <ATen/core/ATen_fwd.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

namespace torch::nn {
class Module;
}

namespace mir::distributed {

// `count` devices to split a batch over: CUDA devices from `first` on, by their
// numbers; the CPU, `count` times.
std::vector<at::Device> ConsecutiveDevices(const at::Device& first, int count);

// Makes a module of the same architecture as the one that is trained, with any
// weights, on the CPU.
using ReplicaFactory = std::function<std::shared_ptr<torch::nn::Module>()>;

// What one replica computes of its part of the batch. Called for all replicas
// at once, each on a thread of its own.
using ReplicaForward = std::function<std::vector<at::Tensor>(
    torch::nn::Module& replica, const std::vector<at::Tensor>& inputs)>;

// Data parallelism within one process: each batch is split over devices, one
// replica of the module on each (what torch.nn.DataParallel does; here the
// replicas persist, and any device will do, also the same one several times).
// Simpler than one process per device (DistributedModel) but slower. A step is
//
//   outputs = parallel.Forward(inputs, forward);
//   loss = ...;               // With the outputs of the whole batch.
//   loss.backward();
//   parallel.AfterBackward();
//   optimizer.step();         // The module's own parameters.
//
// Models share no running statistics over the replicas: a module that changes
// a buffer in its forward is refused. Train those with DistributedModel.
//
// Not thread-safe.
class DataParallel {
 public:
  // `module` lies on the first of `devices`, and is its replica. The others are
  // made by `factory`.
  //
  // Throws c10::ValueError if there is no device, if the module lies on another
  // one, or if a replica's parameters or buffers differ in name, shape or
  // dtype.
  DataParallel(std::shared_ptr<torch::nn::Module> module,
               const ReplicaFactory& factory, std::vector<at::Device> devices);

  // Splits `inputs` along their first axis, which has the same length B in all
  // (also in a hyperparameter: repeat it to [B, 1]), into parts of ceil(B /
  // devices) and less for the last; replicas that are left without one stay
  // idle. Each part goes to its replica's device, under the caller's gradient
  // mode and autocast, with the module's present weights, buffers and training
  // mode.
  //
  // Returns each output joined along its first axis, in the order of the batch,
  // on the first device; an output without axes (an energy, say) as [parts],
  // one value for each replica: take its mean.
  //
  // Throws c10::ValueError for inputs without a common length, for replicas
  // that return different numbers of tensors, and with its name for a buffer
  // that forward changed; what `forward` throws passes through, the first
  // replica's first.
  std::vector<at::Tensor> Forward(const std::vector<at::Tensor>& inputs,
                                  const ReplicaForward& forward);

  // Adds the replicas' gradients to the module's, in the order of the devices,
  // and takes them away. Does nothing where there are none.
  void AfterBackward();

 private:
  std::vector<std::shared_ptr<torch::nn::Module>> replicas_;
  std::vector<at::Device> devices_;
};

}  // namespace mir::distributed

#endif  // MIR_DISTRIBUTED_DATA_PARALLEL_H_
