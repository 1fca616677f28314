#ifndef MIR_CHECKPOINT_STATE_DICT_H_
#define MIR_CHECKPOINT_STATE_DICT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "mir/checkpoint/value.h"

namespace mir::checkpoint {

// The weights of a module under the names that Python's state_dict() gives
// them, in its order.
struct StateDict {
  std::vector<std::pair<std::string, at::Tensor>> entries;
  // The version of each module by its name ("" for the outermost), as Python's
  // `_metadata` has it. Empty for weights that come without.
  std::vector<std::pair<std::string, int64_t>> versions;

  // The entry of that name; null where there is none.
  const at::Tensor* Find(absl::string_view name) const;
};

// The weights in a checkpoint: those under `state_dict`, `model_state_dict` or
// `model_state` (the first that is there), else the checkpoint itself, which
// then is a dict of tensors alone. Entries of other kinds that a module adds
// (`_extra_state`) are left out. The tensors are the checkpoint's, not copies.
//
// Errors: INVALID_ARGUMENT, naming the keys that are there, where none of
// these holds weights.
absl::StatusOr<StateDict> FindStateDict(const Value& checkpoint);

// The key under which FindStateDict looks for the weights; empty where it is
// the checkpoint itself.
std::string WeightsKey(const Value& checkpoint);

// Removes what wrappers put before the names: `module.` (DataParallel, DDP) and
// `_orig_mod.` (torch.compile), in front of any name, however often and in
// whatever order; `_orig_mod.` also within a name, where a part of the model
// was compiled. Names that have no such part are kept, so that a mixture is
// fine.
//
// Errors: INVALID_ARGUMENT where two names become one.
absl::StatusOr<StateDict> StripModulePrefix(const StateDict& state);

// The weights as a checkpoint holds them: an OrderedDict with `_metadata`, so
// that Python's load_state_dict sees what it expects. The tensors are not
// copied.
Value ToValue(const StateDict& state);

}  // namespace mir::checkpoint

#endif  // MIR_CHECKPOINT_STATE_DICT_H_
