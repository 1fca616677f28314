#include "mir/checkpoint/pickle_calls.h"

#include <c10/core/ScalarType.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "mir/base/status_macros.h"
#include "mir/checkpoint/utf8.h"

namespace mir::checkpoint {
namespace {

constexpr int kMaxDimensions = 64;
// A tensor may repeat its storage (an expanded one does), up to this size.
constexpr int64_t kMaxExpandedBytes = int64_t{1} << 30;

// Multiplies non-negative numbers; empty where the result exceeds int64_t.
std::optional<int64_t> Product(const std::vector<int64_t>& factors) {
  if (std::find(factors.begin(), factors.end(), 0) != factors.end()) return 0;
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return std::nullopt;
  }
  return product;
}

// The arguments of a call that could be used, a copy (nodes move as they are
// added).
std::vector<NodeId> Prefix(const std::vector<NodeId>& items) {
  constexpr size_t kMaxArguments = 8;
  return {items.begin(), items.begin() + std::min(items.size(), kMaxArguments)};
}

}  // namespace

PickleCalls::PickleCalls(PickleGraph* graph, size_t input_size)
    : graph_(*graph), input_size_(input_size) {}

absl::Status PickleCalls::Charge(uint64_t bytes) {
  charged_ += bytes;
  if (charged_ > 4 * input_size_ + 4096) {
    return absl::InvalidArgumentError(
        "the pickle unfolds into far more than its size");
  }
  return absl::OkStatus();
}

absl::StatusOr<NodeId> PickleCalls::Call(NodeId callable, NodeId arguments) {
  if (At(callable).kind != Node::Kind::kGlobal) {
    return MalformedPickle("a call of what is no class");
  }
  if (At(arguments).kind != Node::Kind::kTuple) {
    return MalformedPickle("the arguments of a call are no tuple");
  }
  const Known known = At(callable).known;
  const std::vector<NodeId> given = Prefix(At(arguments).items);
  const auto wrong = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("unexpected arguments of ", At(callable).text));
  };
  const auto is = [&](size_t index, Node::Kind kind) {
    return index < given.size() && At(given[index]).kind == kind;
  };
  switch (known) {
    case Known::kOrderedDict:
    case Known::kCounter: {
      std::vector<NodeId> items;
      if (is(0, Node::Kind::kList)) {  // As Python 2 wrote an OrderedDict.
        MIR_ASSIGN_OR_RETURN(items, ItemsOfPairs(given[0]));
      } else if (is(0, Node::Kind::kDict)) {
        MIR_RETURN_IF_ERROR(Charge(At(given[0]).items.size() * sizeof(NodeId)));
        items = At(given[0]).items;
      } else if (!given.empty()) {
        return wrong();
      }
      return Add(DictNode(known == Known::kOrderedDict, std::move(items)));
    }
    case Known::kDefaultDict:
      return Add(DictNode(/*ordered=*/false, {}));
    case Known::kSet:
    case Known::kFrozenSet: {
      if (given.empty()) {
        const NodeId list = Add(ItemsNode(Node::Kind::kList, {}));
        return Add(SetNode(known, list));
      }
      if (given.size() != 1 || !is(0, Node::Kind::kList)) return wrong();
      return Add(SetNode(known, given[0]));
    }
    case Known::kComplex:
    case Known::kDevice: {
      if (given.empty() || given.size() > 2) return wrong();
      return Add(ObjectNode(known, At(callable).text, arguments));
    }
    case Known::kByteArray: {
      if (given.empty()) {
        return Add(BytesNode(""));
      }
      if (given.size() != 1 || !is(0, Node::Kind::kBytes)) return wrong();
      return given[0];
    }
    case Known::kEncode: {
      if (given.size() != 2 || !is(0, Node::Kind::kText) ||
          !is(1, Node::Kind::kText) || At(given[1]).text != "latin1") {
        return wrong();
      }
      MIR_RETURN_IF_ERROR(Charge(At(given[0]).text.size()));
      std::optional<std::string> bytes = Latin1FromUtf8(At(given[0]).text);
      if (!bytes.has_value()) return wrong();
      return Add(BytesNode(*std::move(bytes)));
    }
    case Known::kSize:
      if (given.size() != 1 || !is(0, Node::Kind::kTuple)) return wrong();
      return given[0];
    case Known::kTensorV2:
    case Known::kTensorV3:
      return MakeTensor(known, given);
    case Known::kParameter:
      if (!is(0, Node::Kind::kTensor)) return wrong();
      return given[0];
    case Known::kTensorWithType: {
      // (function, class, arguments of the function, attributes)
      if (!is(0, Node::Kind::kGlobal) || !is(1, Node::Kind::kGlobal) ||
          !is(2, Node::Kind::kTuple)) {
        return wrong();
      }
      const Known function = At(given[0]).known;
      if (At(given[1]).known != Known::kTensorClass ||
          (function != Known::kTensorV2 && function != Known::kTensorV3)) {
        return wrong();
      }
      return MakeTensor(function, Prefix(At(given[2]).items));
    }
    case Known::kNumpyDtype: {
      if (!is(0, Node::Kind::kText)) return wrong();
      if (At(given[0]).text.size() > kMaxClassName) return wrong();
      Node node;
      node.kind = Node::Kind::kNumpyDtype;
      node.text = At(given[0]).text;
      return Add(std::move(node));
    }
    case Known::kNumpyReconstruct: {
      if (!is(0, Node::Kind::kGlobal) ||
          At(given[0]).known != Known::kNumpyArrayClass) {
        return wrong();
      }
      return Add(ItemsNode(Node::Kind::kNumpyArray, {}));
    }
    case Known::kNumpyFromBuffer: {
      // (data, dtype, shape, order)
      if (given.size() != 4 || !is(3, Node::Kind::kText)) return wrong();
      const NodeId array = Add(ItemsNode(Node::Kind::kNumpyArray, {}));
      MIR_RETURN_IF_ERROR(FillArray(array, given[2], given[1], given[0],
                                    At(given[3]).text == "F"));
      return array;
    }
    case Known::kNumpyScalar:
      if (given.size() != 2 || !is(0, Node::Kind::kNumpyDtype) ||
          !is(1, Node::Kind::kBytes)) {
        return wrong();
      }
      return MakeNumpyScalar(given[0], given[1]);
    case Known::kType:
    case Known::kTensorClass:
    case Known::kNumpyArrayClass:
    case Known::kDtype:
    case Known::kStorage:
      return absl::PermissionDeniedError(
          absl::StrCat("refuses a call of ", Quoted(At(callable).text)));
    case Known::kNothing:
      return Add(ObjectNode(known, At(callable).text, arguments));
  }
  return MalformedPickle("a call of what is no class");
}

absl::StatusOr<std::vector<NodeId>> PickleCalls::ItemsOfPairs(NodeId list) {
  std::vector<NodeId> items;
  MIR_RETURN_IF_ERROR(Charge(At(list).items.size() * 2 * sizeof(NodeId)));
  for (const NodeId pair : At(list).items) {
    const Node& node = At(pair);
    if ((node.kind != Node::Kind::kList && node.kind != Node::Kind::kTuple) ||
        node.items.size() != 2) {
      return MalformedPickle("a dict of what are no pairs");
    }
    items.push_back(node.items[0]);
    items.push_back(node.items[1]);
  }
  return items;
}

absl::Status PickleCalls::SetState(NodeId target, NodeId state) {
  Node& node = At(target);
  switch (node.kind) {
    case Node::Kind::kDict:
      if (!node.flag || (At(state).kind != Node::Kind::kDict &&
                         At(state).kind != Node::Kind::kNone)) {
        return MalformedPickle("a dict with a state");
      }
      node.integer = state;
      return absl::OkStatus();
    case Node::Kind::kNumpyDtype: {
      // (version, byte order, then None for all but structured types)
      const Node& given = At(state);
      if (given.kind != Node::Kind::kTuple || given.items.size() < 5 ||
          At(given.items[1]).kind != Node::Kind::kText) {
        return MalformedPickle("the state of a NumPy dtype");
      }
      for (int i = 2; i < 5; ++i) {
        if (At(given.items[i]).kind != Node::Kind::kNone) {
          return absl::InvalidArgumentError(
              "structured NumPy dtypes are not supported");
        }
      }
      node.flag = At(given.items[1]).text == ">";
      return absl::OkStatus();
    }
    case Node::Kind::kNumpyArray: {
      // (version, shape, dtype, Fortran order, data)
      if (At(state).kind != Node::Kind::kTuple || At(state).items.size() != 5) {
        return MalformedPickle("the state of a NumPy array");
      }
      const std::vector<NodeId> given = At(state).items;
      return FillArray(
          target, given[1], given[2], given[4],
          At(given[3]).kind == Node::Kind::kBool && At(given[3]).integer != 0);
    }
    case Node::Kind::kObject:
      if (node.known == Known::kNothing && node.text != "builtins.int") {
        node.integer = state;
        return absl::OkStatus();
      }
      return MalformedPickle("a state for what has none");
    default:
      return MalformedPickle("a state for what has none");
  }
}

absl::StatusOr<NodeId> PickleCalls::Storage(NodeId id) {
  const Node& tuple = At(id);
  const std::vector<NodeId>& items = tuple.items;
  if (tuple.kind != Node::Kind::kTuple || items.empty() ||
      At(items[0]).kind != Node::Kind::kText) {
    return MalformedPickle("a persistent id that is no storage's");
  }
  if (At(items[0]).text == "module") {
    return absl::PermissionDeniedError(
        "refuses a pickled module: save its state_dict() instead");
  }
  if (At(items[0]).text != "storage" || items.size() < 5 || items.size() > 6 ||
      At(items[1]).kind != Node::Kind::kGlobal ||
      At(items[1]).known != Known::kStorage ||
      At(items[2]).kind != Node::Kind::kText ||
      At(items[3]).kind != Node::Kind::kText ||
      At(items[4]).kind != Node::Kind::kInt) {
    return MalformedPickle("a persistent id that is no storage's");
  }
  if (items.size() == 6 && At(items[5]).kind != Node::Kind::kNone) {
    return absl::InvalidArgumentError(
        "views of storages, from before torch 0.4, are not supported");
  }
  const std::string& key = At(items[2]).text;
  const std::string& location = At(items[3]).text;
  const at::ScalarType dtype = At(items[1]).dtype;
  const int64_t count = At(items[4]).integer;
  int64_t nbytes = 0;
  if (key.size() > kMaxClassName || location.size() > kMaxClassName ||
      count < 0 ||
      __builtin_mul_overflow(
          count, static_cast<int64_t>(c10::elementSize(dtype)), &nbytes)) {
    return MalformedPickle("a storage with an impossible name or size");
  }
  const auto [entry, added] = keys_.try_emplace(key, graph_.storages.size());
  if (added) {
    graph_.storages.push_back({key, dtype, nbytes, location});
  } else if (graph_.storages[entry->second].nbytes != nbytes) {
    return MalformedPickle(
        absl::StrCat("storage ", Quoted(key), " has two sizes"));
  }
  Node node;
  node.kind = Node::Kind::kStorage;
  node.dtype = dtype;
  node.integer = static_cast<int64_t>(entry->second);
  return Add(std::move(node));
}

absl::StatusOr<NodeId> PickleCalls::MakeTensor(
    Known function, const std::vector<NodeId>& given) {
  // (storage, offset, sizes, strides[, requires_grad, hooks][, dtype]
  //  [, metadata])
  const auto wrong = [] {
    return MalformedPickle("a tensor with unexpected arguments");
  };
  if (given.size() < 4 || At(given[0]).kind != Node::Kind::kStorage ||
      At(given[1]).kind != Node::Kind::kInt) {
    return wrong();
  }
  TensorRecord tensor;
  tensor.storage = At(given[0]).integer;
  tensor.dtype = At(given[0]).dtype;
  tensor.offset = At(given[1]).integer;
  size_t metadata = 6;
  if (function == Known::kTensorV3) {
    if (given.size() < 7 || At(given[6]).kind != Node::Kind::kGlobal ||
        At(given[6]).known != Known::kDtype) {
      return wrong();
    }
    tensor.dtype = At(given[6]).dtype;
    metadata = 7;
  }
  if (given.size() > metadata) {
    const Node& node = At(given[metadata]);
    if (node.kind != Node::Kind::kNone &&
        !(node.kind == Node::Kind::kDict && node.items.empty())) {
      return absl::InvalidArgumentError(
          "tensors with lazy conjugation or negation are not supported: "
          "save tensor.resolve_conj().resolve_neg()");
    }
  }
  MIR_ASSIGN_OR_RETURN(tensor.sizes, Integers(given[2]));
  MIR_ASSIGN_OR_RETURN(tensor.strides, Integers(given[3]));
  MIR_RETURN_IF_ERROR(CheckBounds(tensor));
  Node node;
  node.kind = Node::Kind::kTensor;
  node.integer = static_cast<int64_t>(graph_.tensors.size());
  graph_.tensors.push_back(std::move(tensor));
  return Add(std::move(node));
}

absl::StatusOr<std::vector<int64_t>> PickleCalls::Integers(NodeId tuple) {
  const Node& node = At(tuple);
  if (node.kind != Node::Kind::kTuple || node.items.size() > kMaxDimensions) {
    return MalformedPickle("a shape that is no tuple of at most 64");
  }
  std::vector<int64_t> integers;
  for (const NodeId item : node.items) {
    if (At(item).kind != Node::Kind::kInt || At(item).integer < 0) {
      return MalformedPickle("a shape with something but sizes");
    }
    integers.push_back(At(item).integer);
  }
  return integers;
}

absl::Status PickleCalls::CheckBounds(const TensorRecord& tensor) {
  const StorageRecord& storage = graph_.storages[tensor.storage];
  const int64_t itemsize = static_cast<int64_t>(c10::elementSize(tensor.dtype));
  const int64_t available = storage.nbytes / itemsize;
  const auto outside = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("a tensor reaches beyond its storage ",
                     Quoted(storage.key), " of ", storage.nbytes, " bytes"));
  };
  if (tensor.sizes.size() != tensor.strides.size()) {
    return MalformedPickle("a tensor with more sizes than strides or fewer");
  }
  const std::optional<int64_t> count = Product(tensor.sizes);
  if (!count.has_value() || tensor.offset < 0 || tensor.offset > available) {
    return outside();
  }
  if (*count == 0) return absl::OkStatus();
  int64_t last = tensor.offset;
  for (size_t i = 0; i < tensor.sizes.size(); ++i) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(tensor.sizes[i] - 1, tensor.strides[i],
                               &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      return outside();
    }
  }
  if (last >= available) return outside();
  if (*count > available && *count > kMaxExpandedBytes / itemsize) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tensor of ", *count, " elements expanded from ",
                     available, " in the file; at most 1 GiB is accepted"));
  }
  return absl::OkStatus();
}

absl::StatusOr<at::ScalarType> PickleCalls::DtypeOf(NodeId dtype) {
  const Node& node = At(dtype);
  if (node.kind != Node::Kind::kNumpyDtype) {
    return MalformedPickle("a NumPy array without a dtype");
  }
  if (const auto type = NumpyDtypeFromName(node.text)) return *type;
  return absl::InvalidArgumentError(
      absl::StrCat("NumPy dtype ", Quoted(node.text), " is not supported"));
}

absl::Status PickleCalls::FillArray(NodeId array, NodeId shape, NodeId dtype,
                                    NodeId data, bool fortran) {
  MIR_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, Integers(shape));
  MIR_ASSIGN_OR_RETURN(const at::ScalarType type, DtypeOf(dtype));
  if (At(data).kind != Node::Kind::kBytes) {
    return MalformedPickle("a NumPy array without data");
  }
  std::vector<int64_t> factors = sizes;
  factors.push_back(static_cast<int64_t>(c10::elementSize(type)));
  const std::optional<int64_t> nbytes = Product(factors);
  if (nbytes != static_cast<int64_t>(At(data).text.size())) {
    return MalformedPickle("a NumPy array whose data do not fill its shape");
  }
  MIR_RETURN_IF_ERROR(Charge(*nbytes));
  At(array).items = {shape, dtype, data};
  At(array).flag = fortran;
  return absl::OkStatus();
}

absl::StatusOr<NodeId> PickleCalls::MakeNumpyScalar(NodeId dtype, NodeId data) {
  MIR_ASSIGN_OR_RETURN(const at::ScalarType type, DtypeOf(dtype));
  std::string bytes = At(data).text;
  if (bytes.size() != c10::elementSize(type)) {
    return MalformedPickle("a NumPy scalar of another size than its dtype's");
  }
  if (c10::isComplexType(type)) {
    return absl::InvalidArgumentError(
        "complex NumPy scalars are not supported");
  }
  if (At(dtype).flag) std::reverse(bytes.begin(), bytes.end());
  const auto as = [&](auto value) {
    std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  };
  switch (type) {
    case at::ScalarType::Bool:
      return Add(BoolNode(bytes[0] != 0));
    case at::ScalarType::Half:
      return Add(FloatNode(as(c10::Half())));
    case at::ScalarType::Float:
      return Add(FloatNode(as(float())));
    case at::ScalarType::Double:
      return Add(FloatNode(as(double())));
    default:
      // LongNode takes two's complement; an unsigned one needs a sign.
      if (At(dtype).text[0] == 'u') bytes.push_back('\0');
      return Add(LongNode(bytes, &graph_));
  }
}

}  // namespace mir::checkpoint
