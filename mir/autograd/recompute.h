#ifndef MIR_AUTOGRAD_RECOMPUTE_H_
#define MIR_AUTOGRAD_RECOMPUTE_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace mir::autograd {

// A part of a network: from its input to its output.
using Segment = std::function<at::Tensor(const at::Tensor& input)>;

// Activation checkpointing, as Python's torch.utils.checkpoint: computes
// `segment(input)` and keeps none of what it computed on the way; the backward
// pass computes it again, one segment at a time. The value and the gradients
// are those of a plain call, bit for bit; but where autocast casts a weight
// once for several uses, a plain call sums their gradients in 16 bits, and this
// in the weight's own type.
//
//   segment     deterministic but for random numbers; called once now and once
//               in each backward pass, so what it refers to must live until
//               then (capture shared pointers). It must not change its input
//   input       floating or not, of any shape
//   parameters  every other tensor requiring gradients that the segment uses,
//               such as module.parameters(); tensors that do not are ignored
//
// The second computation runs under the autocast state of the first (without
// autocast's cache, which could hold weights cast without a graph) and draws
// the same random numbers from the default generators of the CPU and of the
// input's GPU; after it the generators continue where they were.
//
// Where nothing requires gradients, or gradient mode is off, this is a plain
// call. Segments nest. Parameters are inputs of the node that the backward pass
// meets: it accumulates their gradients as for any other node, so hooks of
// distributed training run once per parameter and unused ones are found. A hook
// registered on the tensor itself would run twice.
//
// Threads may call it at the same time, but a segment that draws random numbers
// repeats them only where no other thread draws from the same generator.
//
// Throws c10::ValueError if an argument is undefined; in the backward pass,
// c10::ValueError if the segment used a tensor requiring gradients that is not
// among `parameters`, and c10::NotImplementedError if it is differentiated
// twice. Parameters changed in place between the passes are an error, as
// anywhere in LibTorch.
at::Tensor Recompute(Segment segment, const at::Tensor& input,
                     const std::vector<at::Tensor>& parameters);

// The same for a segment of several inputs and outputs.
std::vector<at::Tensor> Recompute(
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>
        segment,
    const std::vector<at::Tensor>& inputs,
    const std::vector<at::Tensor>& parameters);

// Whether this thread computes a segment again, so that what a layer counts or
// averages in training (batch normalisation's statistics) is not taken twice.
bool IsRecomputing();

}  // namespace mir::autograd

#endif  // MIR_AUTOGRAD_RECOMPUTE_H_
