#ifndef MIR_DISTRIBUTED_NAMED_TENSORS_H_
#define MIR_DISTRIBUTED_NAMED_TENSORS_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace mir::distributed {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// What a module holds, in the order of its registration; a tensor with two
// names comes once, under the first, and one that is not defined not at all.
NamedTensors Buffers(const torch::nn::Module& module);  // Empty ones left out.
NamedTensors TrainedParameters(const torch::nn::Module& module);
// All parameters, frozen ones too, then the buffers.
NamedTensors AllTensors(const torch::nn::Module& module);

}  // namespace mir::distributed

#endif  // MIR_DISTRIBUTED_NAMED_TENSORS_H_
