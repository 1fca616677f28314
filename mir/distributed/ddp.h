#ifndef MIR_DISTRIBUTED_DDP_H_
#define MIR_DISTRIBUTED_DDP_H_

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "mir/distributed/init.h"

namespace torch::nn {
class Module;
}

namespace mir::distributed {

// In which precision gradients travel between the ranks. Each rank rounds the
// mean's share of its gradients to 16 bits; they arrive in their own dtype.
enum class Compression { kNone, kFloat16, kBFloat16 };

// The compression of a name: "none", "fp16" or "bf16". Any other is
// INVALID_ARGUMENT, and the message lists the three.
absl::StatusOr<Compression> ParseCompression(absl::string_view name);

// Adds a tensor over all ranks, in place; every rank calls it in the same
// order. Throws what IsPeerFailure recognises.
using SumOverRanks = std::function<void(at::Tensor& sums)>;
// Gives it to all batch normalisations of a module.
using BatchNormSetter =
    std::function<void(torch::nn::Module& module, const SumOverRanks& sum)>;

struct DdpOptions {
  // Parameters that a step does not use are found by a walk through its graph,
  // and keep the gradient they had; without it they stop the training. On by
  // default, since some models own parameters that not every configuration uses
  // (the `reg_head` of TransMorphTVF). Off is a little faster where every
  // parameter gets a gradient in every step.
  bool find_unused_parameters = true;
  // Gradients are views into the buffers that are exchanged, which saves one
  // copy of them in memory. Clear them with ZeroGrad then: the optimizer's
  // zero_grad() throws on views.
  bool gradient_as_bucket_view = false;
  // Every step uses the same parameters in the same graph, which is learnt in
  // the first: that saves the search for unused parameters after it.
  bool static_graph = false;
  // Halves what is sent. float16 overflows at 65504 and loses what is below
  // 6e-8: bfloat16 is the safer one without a loss scale.
  Compression compression = Compression::kNone;
  // Rank 0's buffers (running statistics) replace the others' before the
  // forward of each step that exchanges gradients.
  bool broadcast_buffers = true;
  // Batch normalisations take their mean and variance over the batches of all
  // ranks, on any backend, as one process does with the joined batch (what
  // torch.nn.SyncBatchNorm does on GPUs). Only the layer itself can do so:
  // models::SetSumOverRanks tells those of this library. Empty: each rank
  // normalises its own batch, and rank 0's running statistics are kept.
  BatchNormSetter sync_batchnorm;
  // Gradients are exchanged in pieces of about this size while the backward
  // pass goes on.
  int64_t bucket_bytes = 25 << 20;
};

// Trains one module on all ranks: each computes the gradients of its own cases,
// and the backward pass leaves their mean on every rank (Li et al., "PyTorch
// Distributed: Experiences on Accelerating Data Parallel Training", 2020; the
// exchange is LibTorch's c10d::Reducer). A step is
//
//   model.BeforeForward();
//   loss = ...;                        // With the module itself.
//   model.BeforeBackward({loss});
//   loss.backward();
//   model.AfterBackward();
//   optimizer.step();
//
// and the loss is the mean over the rank's own cases: its gradient is then that
// of the mean over all ranks' cases, as in a single process with the joined
// batch. To accumulate gradients, say BeforeForward(false) for all
// micro-batches but the last of a step; only that one exchanges them.
//
// All ranks make the same calls in the same order. A peer that dies makes
// backward() or the next call throw what IsPeerFailure recognises. In a single
// process nothing is done at all. Not thread-safe.
class DistributedModel {
 public:
  // Gives every rank the parameters (frozen ones too) and buffers of rank 0.
  // Parameters must not be added, replaced or frozen afterwards. A parameter
  // that has two names counts once. `module` must outlive this.
  //
  // Throws c10::ValueError if the ranks' parameters or buffers differ in name,
  // shape, strides or dtype (it names the first that does), or if the module
  // has no parameter to train.
  DistributedModel(torch::nn::Module& module, const Context& context,
                   const DdpOptions& options = {});
  ~DistributedModel();
  DistributedModel(DistributedModel&&) noexcept;
  DistributedModel& operator=(DistributedModel&&) noexcept;

  // Before each forward of the training; not for evaluation. `sync` says
  // whether the backward that follows exchanges gradients.
  void BeforeForward(bool sync = true);

  // Between forward and backward, with the tensors that backward will start
  // from (the loss, scaled or not). Once it was called, backward must follow on
  // every rank: skip a bad loss before.
  void BeforeBackward(const std::vector<at::Tensor>& roots);

  // After backward. Throws c10::ValueError with the names of the parameters
  // that got no gradient, where find_unused_parameters is off.
  void AfterBackward();

  // Takes all gradients away.
  void ZeroGrad();

  // Replaces every rank's buffers by rank 0's: before an evaluation.
  void BroadcastBuffers();

 private:
  struct State;
  std::unique_ptr<State> state_;  // Null in a single process.
  torch::nn::Module* module_;
};

// A DistributedModel, with the constructor's errors as statuses:
// INVALID_ARGUMENT for a ValueError, UNAVAILABLE for a peer's failure.
absl::StatusOr<std::unique_ptr<DistributedModel>> WrapModel(
    torch::nn::Module& module, const Context& context,
    const DdpOptions& options = {});

}  // namespace mir::distributed

#endif  // MIR_DISTRIBUTED_DDP_H_
