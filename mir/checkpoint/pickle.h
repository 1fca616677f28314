#ifndef MIR_CHECKPOINT_PICKLE_H_
#define MIR_CHECKPOINT_PICKLE_H_

#include <c10/core/Storage.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "mir/checkpoint/value.h"

namespace mir::checkpoint {

// What Python's torch.load(weights_only=True) unpickles.
struct Pickled {
  std::string bytes;  // Protocol 2.
  // The storages that `bytes` names "0", "1", ...; each stands once, whole.
  // They may lie on a GPU, though the pickle always says "cpu".
  struct Record {
    at::Storage storage;
    int64_t nbytes;  // Of the storage's bytes, how many to write.
  };
  std::vector<Record> storages;
};

// Pickles `value`: tensors by reference to their storages, OrderedDict with
// its attributes (`_metadata`). Tensors and containers that are shared in
// `value` are shared in Python. Two dtypes on one storage, which torch.load
// cannot tell apart, get a copy each. requires_grad is written as False.
//
// Errors: INVALID_ARGUMENT, naming the place in `value`, for what
// weights_only=True would refuse or torch.save could not write: objects
// other than those that value.h calls harmless (frozenset also is refused),
// tensors that are undefined, sparse, quantized, meta, or a lazy conjugate, a
// dtype without a name in value.h, a string that is not UTF-8; and for values
// nested deeper than kMaxNesting.
absl::StatusOr<Pickled> Pickle(const Value& value);

}  // namespace mir::checkpoint

#endif  // MIR_CHECKPOINT_PICKLE_H_
