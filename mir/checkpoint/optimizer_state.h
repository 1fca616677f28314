#ifndef MIR_CHECKPOINT_OPTIMIZER_STATE_H_
#define MIR_CHECKPOINT_OPTIMIZER_STATE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "mir/checkpoint/value.h"

namespace torch::optim {
class Optimizer;
}

namespace mir::checkpoint {

// The state of a torch::optim Adam, AdamW or SGD in the layout of Python's
// optimizer.state_dict() (torch 2.11): {'state': {0: {'step', 'exp_avg', ...}},
// 'param_groups': [{'lr', ..., 'params': [0, ...]}]}. Parameters are numbered
// as the groups list them; those that have not been stepped have no state. The
// tensors are the optimizer's own, not copies.
//
// Errors: INVALID_ARGUMENT for another optimizer.
absl::StatusOr<Value> OptimizerState(const torch::optim::Optimizer& optimizer);

// Sets `optimizer` to such a state, by Python or by OptimizerState, with all
// options of its groups; the next steps are those that the saved one would have
// made. The tensors are copied, to the dtype and device of their parameters.
//
// Errors: INVALID_ARGUMENT, saying what was wanted and what came, for an
// optimizer other than these three, a state of another optimizer, other counts
// of groups or parameters, other shapes, parts that are missing, and options
// that LibTorch's optimizers do not have (`maximize`). `optimizer` is then
// unchanged.
absl::Status LoadOptimizerState(torch::optim::Optimizer& optimizer,
                                const Value& state);

}  // namespace mir::checkpoint

#endif  // MIR_CHECKPOINT_OPTIMIZER_STATE_H_
