#ifndef MIR_CHECKPOINT_UNPICKLE_H_
#define MIR_CHECKPOINT_UNPICKLE_H_

#include <c10/core/Storage.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "mir/checkpoint/pickle_graph.h"
#include "mir/checkpoint/value.h"

namespace mir::checkpoint {

struct UnpickleOptions {
  // Keeps what is of an unknown class as an Object instead of refusing it.
  bool keep_unknown_classes = false;
};

// A pickle that has been read and checked, but whose tensors have no data yet.
class ParsedPickle {
 public:
  ParsedPickle(ParsedPickle&&) noexcept;
  ParsedPickle& operator=(ParsedPickle&&) noexcept;
  ~ParsedPickle();

  // How many bytes of the input the pickle took: up to its STOP.
  size_t size() const;

  // The storages in the order of their first use; each key stands once.
  const std::vector<StorageRecord>& storages() const;

  // Builds the value. `load` is called once for each storage that a tensor
  // uses, and returns one of at least `nbytes`; its errors are passed on.
  // Tensors that shared a storage share it again; none requires a gradient.
  absl::StatusOr<Value> Build(
      const std::function<absl::StatusOr<at::Storage>(const StorageRecord&)>&
          load) const;

 private:
  friend absl::StatusOr<ParsedPickle> ParsePickle(
      absl::string_view bytes, const UnpickleOptions& options);
  explicit ParsedPickle(std::unique_ptr<PickleGraph> graph);
  std::unique_ptr<PickleGraph> graph_;
};

// Reads the pickle (protocol 2 to 5) at the beginning of `bytes`.
//
// Nothing is ever executed: the classes and functions that torch.save emits
// (tensors, parameters, storages, OrderedDict, dtypes, sizes, devices, NumPy
// scalars and arrays) are known here by name, each with its meaning; all
// others are refused by name. Memory stays in proportion to the input,
// whatever lengths and counts it claims. Thread-safe.
//
// Errors: OUT_OF_RANGE if the bytes end before the pickle does;
// PERMISSION_DENIED, naming the class, for a class that is not known;
// INVALID_ARGUMENT for everything else that is malformed or unsupported.
absl::StatusOr<ParsedPickle> ParsePickle(absl::string_view bytes,
                                         const UnpickleOptions& options = {});

}  // namespace mir::checkpoint

#endif  // MIR_CHECKPOINT_UNPICKLE_H_
