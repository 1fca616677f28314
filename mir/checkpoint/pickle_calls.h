#ifndef MIR_CHECKPOINT_PICKLE_CALLS_H_
#define MIR_CHECKPOINT_PICKLE_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "mir/checkpoint/pickle_graph.h"

namespace mir::checkpoint {

// What a pickle's calls of known classes and functions mean: none of them is
// made, their results are added to the graph instead.
//
// Errors are those of ParsePickle.
class PickleCalls {
 public:
  // `input_size`: of the pickle; bounds what all calls together may copy.
  PickleCalls(PickleGraph* graph, size_t input_size);

  // callable(*arguments). A class that is not known becomes a kObject.
  absl::StatusOr<NodeId> Call(NodeId callable, NodeId arguments);

  // target.__setstate__(state), or target.__dict__.update(state).
  absl::Status SetState(NodeId target, NodeId state);

  // The storage that a persistent id names.
  absl::StatusOr<NodeId> Storage(NodeId id);

 private:
  Node& At(NodeId id) { return graph_.nodes[id]; }
  NodeId Add(Node node) { return graph_.Add(std::move(node)); }

  // What is copied besides the bytes of the pickle themselves must stay in
  // proportion to them, however often the pickle asks for the same copy.
  absl::Status Charge(uint64_t bytes);

  absl::StatusOr<std::vector<NodeId>> ItemsOfPairs(NodeId list);
  absl::StatusOr<std::vector<int64_t>> Integers(NodeId tuple);
  absl::StatusOr<NodeId> MakeTensor(Known function,
                                    const std::vector<NodeId>& given);
  absl::Status CheckBounds(const TensorRecord& tensor);
  absl::StatusOr<at::ScalarType> DtypeOf(NodeId dtype);
  absl::Status FillArray(NodeId array, NodeId shape, NodeId dtype, NodeId data,
                         bool fortran);
  absl::StatusOr<NodeId> MakeNumpyScalar(NodeId dtype, NodeId data);

  PickleGraph& graph_;
  const size_t input_size_;
  uint64_t charged_ = 0;
  absl::flat_hash_map<std::string, size_t> keys_;  // Of the storages.
};

}  // namespace mir::checkpoint

#endif  // MIR_CHECKPOINT_PICKLE_CALLS_H_
