#ifndef MIR_CHECKPOINT_PICKLE_GRAPH_H_
#define MIR_CHECKPOINT_PICKLE_GRAPH_H_

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "mir/checkpoint/python_classes.h"

namespace mir::checkpoint {

// Names of classes, storages and devices are no longer than this.
inline constexpr size_t kMaxClassName = 512;

using NodeId = uint32_t;
inline constexpr int64_t kNoNode = -1;

// One Python object while the pickle is read. Nodes refer to each other by
// number, so that neither cycles nor depth can do harm.
struct Node {
  enum class Kind : unsigned char {
    kNone,
    kBool,
    kInt,
    kFloat,
    kText,
    kBytes,
    kList,
    kTuple,
    kDict,
    kGlobal,  // A class or function, not called.
    kObject,  // items: what it was called with.
    kStorage,
    kTensor,
    kNumpyDtype,
    kNumpyArray,  // items: shape, dtype, data; empty until it is given them.
  };
  Kind kind = Kind::kNone;
  // kDict: ordered. kNumpyDtype: big end first. kNumpyArray: Fortran order.
  bool flag = false;
  // kGlobal. kObject keeps that of its class.
  Known known = Known::kNothing;
  at::ScalarType dtype = at::ScalarType::Undefined;
  // kBool, kInt; kFloat: its bits; kStorage, kTensor: their index; kDict,
  // kObject: the node of its attributes or state, or kNoNode.
  int64_t integer = 0;
  std::string text;  // kText, kBytes; the name of a kGlobal, kObject.
  std::vector<NodeId> items;
};

// A storage that a pickle refers to; its bytes lie outside the pickle.
struct StorageRecord {
  std::string key;       // Its name in the checkpoint.
  at::ScalarType dtype;  // kByte for an untyped one.
  int64_t nbytes;        // As the pickle says: check it before allocating.
  std::string location;  // Where it was saved: "cpu", "cuda:0".
};

// A tensor within a storage; it has been checked to lie inside.
struct TensorRecord {
  int64_t storage;
  at::ScalarType dtype;
  int64_t offset;  // In elements.
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

// What a pickle holds.
struct PickleGraph {
  size_t size = 0;  // Of the pickle, in bytes.
  NodeId root = 0;
  std::vector<Node> nodes;
  std::vector<StorageRecord> storages;
  std::vector<TensorRecord> tensors;

  NodeId Add(Node node);
};

// Nodes of these kinds. A LongNode takes two's complement, the little end
// first, in as many bytes as there are; beyond int64_t it is a kObject, whose
// bytes it adds to `graph`. A set's `list` is the node of its items.
Node BoolNode(bool value);
Node IntNode(int64_t value);
Node LongNode(absl::string_view bytes, PickleGraph* graph);
Node FloatNode(double value);
Node BytesNode(std::string bytes);
Node ItemsNode(Node::Kind kind, std::vector<NodeId> items);
Node DictNode(bool ordered, std::vector<NodeId> items);
Node ObjectNode(Known known, std::string class_name, NodeId args);
Node SetNode(Known known, NodeId list);

absl::Status MalformedPickle(absl::string_view what);
// `text` for a message: in quotes, escaped, not too long.
std::string Quoted(absl::string_view text);

}  // namespace mir::checkpoint

#endif  // MIR_CHECKPOINT_PICKLE_GRAPH_H_
