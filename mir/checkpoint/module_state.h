#ifndef MIR_CHECKPOINT_MODULE_STATE_H_
#define MIR_CHECKPOINT_MODULE_STATE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "mir/checkpoint/state_dict.h"

namespace torch::nn {
class Module;
}

namespace mir::checkpoint {

// The weights of `module` under the names and in the order of Python's
// state_dict(): for each module its parameters, then its buffers, then its
// children, each as registered. Parameters that two modules share stand under
// both names. The tensors are the module's own, without their gradients.
StateDict ModuleState(const torch::nn::Module& module);

// The model inside its wrappers (DataParallel, DDP): as in Python, a module
// whose only child is called `module`, and which has no parameters and buffers
// of its own, wraps that child. Another module is itself.
torch::nn::Module& UnwrapModel(torch::nn::Module& module);
const torch::nn::Module& UnwrapModel(const torch::nn::Module& module);

// The weights as they should be saved, so that a plain model loads them
// strictly: those of the model inside its wrappers.
StateDict StateDictForSaving(const torch::nn::Module& module);

// What LoadStateDict did with each name.
struct LoadReport {
  std::vector<std::string> loaded;
  std::vector<std::string> missing;     // In the module alone.
  std::vector<std::string> unexpected;  // In the weights alone.
  // "NAME: [2, 3] in the weights, [2, 4] in the module".
  std::vector<std::string> mismatched;
  // Sampling grids in the weights alone (`grid`, `*.grid`): MIR's Python
  // modules keep these constants as buffers, ours need none.
  std::vector<std::string> ignored_grids;

  // Whether every name is in both, with equal shapes (but for the grids).
  bool fits() const {
    return !loaded.empty() && missing.empty() && unexpected.empty() &&
           mismatched.empty();
  }

  // All of the above in words, for a log; one line for each that is not empty.
  std::string Describe() const;
};

// How `state` fits the parameters and buffers of `module`, as LoadStateDict
// sees it: under `loaded` stand those that it would load. Neither is changed,
// and no value is looked at.
LoadReport CompareStateDict(const torch::nn::Module& module,
                            const StateDict& state);

// Copies `state` into the parameters and buffers of `module`, converting dtype
// and device.
//
// With `strict`, as Python's load_state_dict: every name must be in both, with
// equal shapes. Otherwise what fits is loaded and the rest is reported. As in
// Python, `num_batches_tracked` may be missing in weights from before it
// existed, and a one-element tensor from before torch 0.4 fills a scalar.
//
// Errors: INVALID_ARGUMENT; with `strict`, one that names all missing and
// unexpected names and every shape that differs, with both shapes; in either
// way, if not a single name fits. `module` is then unchanged.
absl::StatusOr<LoadReport> LoadStateDict(torch::nn::Module& module,
                                         const StateDict& state, bool strict);

// Loads of `state` what fits, whatever wrappers the module or the saved one
// has: StripModulePrefix, then LoadStateDict without `strict` into
// UnwrapModel(module). The report says what did not fit. Errors are theirs.
absl::StatusOr<LoadReport> LoadPartialWeights(torch::nn::Module& module,
                                              const StateDict& state);

}  // namespace mir::checkpoint

#endif  // MIR_CHECKPOINT_MODULE_STATE_H_
