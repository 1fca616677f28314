#include "mir/checkpoint/unpickle.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/TensorOptions.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "mir/base/catch_torch.h"
#include "mir/base/status_macros.h"
#include "mir/checkpoint/pickle_calls.h"
#include "mir/checkpoint/utf8.h"

namespace mir::checkpoint {
namespace {

// The opcodes of protocols 2 to 5 that a checkpoint can have.
enum Opcode : unsigned char {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kEmptyList = ']',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyDict = '}',
  kEmptyTuple = ')',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kProto = 0x80,
  kNewObj = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes8 = 0x8e,
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
  kByteArray8 = 0x96,
};

// The names that Python 2, and protocol 2 after it, use.
std::string ModernName(absl::string_view module, absl::string_view name) {
  if (module == "__builtin__") module = "builtins";
  return absl::StrCat(module, ".", name);
}

// Runs the opcodes of one pickle.
class Machine {
 public:
  Machine(absl::string_view input, const UnpickleOptions& options,
          PickleGraph* graph)
      : input_(input),
        options_(options),
        graph_(*graph),
        calls_(graph, input.size()) {}

  absl::Status Run() {
    if (input_.size() > std::numeric_limits<NodeId>::max()) {
      return absl::InvalidArgumentError("the pickle is larger than 4 GiB");
    }
    while (!stopped_) {
      MIR_ASSIGN_OR_RETURN(const uint64_t opcode, Number(1));
      MIR_RETURN_IF_ERROR(Step(static_cast<unsigned char>(opcode)));
    }
    graph_.size = position_;
    return absl::OkStatus();
  }

 private:
  // Reading.
  absl::StatusOr<absl::string_view> Bytes(uint64_t count) {
    if (count > input_.size() - position_) {
      return absl::OutOfRangeError("the pickle ends early");
    }
    const absl::string_view bytes = input_.substr(position_, count);
    position_ += count;
    return bytes;
  }

  absl::StatusOr<uint64_t> Number(int byte_count) {
    MIR_ASSIGN_OR_RETURN(const absl::string_view bytes, Bytes(byte_count));
    uint64_t number = 0;
    for (int i = byte_count - 1; i >= 0; --i) {
      number = number << 8 | static_cast<unsigned char>(bytes[i]);
    }
    return number;
  }

  absl::StatusOr<absl::string_view> Counted(int count_size) {
    MIR_ASSIGN_OR_RETURN(const uint64_t count, Number(count_size));
    return Bytes(count);
  }

  absl::StatusOr<absl::string_view> Line() {
    const size_t end = input_.find('\n', position_);
    if (end == absl::string_view::npos) {
      if (input_.size() - position_ > kMaxClassName) {
        return MalformedPickle("a name without end");
      }
      return absl::OutOfRangeError("the pickle ends early");
    }
    const absl::string_view line = input_.substr(position_, end - position_);
    position_ = end + 1;
    return line;
  }

  // The stack.
  Node& At(NodeId id) { return graph_.nodes[id]; }
  void Push(NodeId id) { stack_.push_back(id); }
  absl::Status PushNew(Node node) {
    Push(graph_.Add(std::move(node)));
    return absl::OkStatus();
  }

  size_t Floor() const { return marks_.empty() ? 0 : marks_.back(); }

  absl::StatusOr<NodeId> Pop() {
    if (stack_.size() <= Floor()) return MalformedPickle("the stack is empty");
    const NodeId id = stack_.back();
    stack_.pop_back();
    return id;
  }

  absl::StatusOr<NodeId> Top() const {
    if (stack_.size() <= Floor()) return MalformedPickle("the stack is empty");
    return stack_.back();
  }

  absl::StatusOr<std::vector<NodeId>> PopToMark() {
    if (marks_.empty()) return MalformedPickle("no mark on the stack");
    std::vector<NodeId> items(stack_.begin() + marks_.back(), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }

  // One opcode.
  absl::Status Step(unsigned char opcode) {
    switch (opcode) {
      case kProto: {
        MIR_ASSIGN_OR_RETURN(const uint64_t protocol, Number(1));
        if (protocol > 5) {
          return absl::InvalidArgumentError(absl::StrCat(
              "pickle protocol ", protocol, "; at most 5 is known"));
        }
        return absl::OkStatus();
      }
      case kFrame:
        return Number(8).status();
      case kStop: {
        MIR_ASSIGN_OR_RETURN(graph_.root, Pop());
        stopped_ = true;
        return absl::OkStatus();
      }
      case kMark:
        marks_.push_back(stack_.size());
        return absl::OkStatus();
      case kPop:
        // After a mark with nothing above it, the mark itself.
        if (!marks_.empty() && stack_.size() == marks_.back()) {
          marks_.pop_back();
          return absl::OkStatus();
        }
        return Pop().status();
      case kPopMark:
        return PopToMark().status();
      case kDup: {
        MIR_ASSIGN_OR_RETURN(const NodeId top, Top());
        Push(top);
        return absl::OkStatus();
      }
      case kBinPut:
        return Memoize(Number(1));
      case kLongBinPut:
        return Memoize(Number(4));
      case kMemoize:
        return Memoize(uint64_t{memo_.size()});
      case kBinGet:
        return Recall(Number(1));
      case kLongBinGet:
        return Recall(Number(4));
      case kNone:
        return PushNew({});
      case kNewTrue:
        return PushNew(BoolNode(true));
      case kNewFalse:
        return PushNew(BoolNode(false));
      case kBinInt: {
        MIR_ASSIGN_OR_RETURN(const uint64_t number, Number(4));
        return PushNew(IntNode(static_cast<int32_t>(number)));
      }
      case kBinInt1: {
        MIR_ASSIGN_OR_RETURN(const uint64_t number, Number(1));
        return PushNew(IntNode(number));
      }
      case kBinInt2: {
        MIR_ASSIGN_OR_RETURN(const uint64_t number, Number(2));
        return PushNew(IntNode(number));
      }
      case kLong1:
        return PushLong(Counted(1));
      case kLong4:
        return PushLong(Counted(4));
      case kBinFloat: {
        MIR_ASSIGN_OR_RETURN(const uint64_t bits, Number(8));
        Node node;
        node.kind = Node::Kind::kFloat;
        // The one number in a pickle with its big end first.
        node.integer = static_cast<int64_t>(__builtin_bswap64(bits));
        return PushNew(std::move(node));
      }
      case kBinUnicode:
        return PushText(Counted(4));
      case kShortBinUnicode:
        return PushText(Counted(1));
      case kBinUnicode8:
        return PushText(Counted(8));
      case kBinString:
        return PushPython2String(Counted(4));
      case kShortBinString:
        return PushPython2String(Counted(1));
      case kBinBytes:
        return PushBytes(Counted(4));
      case kShortBinBytes:
        return PushBytes(Counted(1));
      case kBinBytes8:
      case kByteArray8:
        return PushBytes(Counted(8));
      case kEmptyList:
        return PushNew(ItemsNode(Node::Kind::kList, {}));
      case kEmptyTuple:
        return PushNew(ItemsNode(Node::Kind::kTuple, {}));
      case kEmptyDict:
        return PushNew(DictNode(/*ordered=*/false, {}));
      case kEmptySet:
        return PushSet(Known::kSet, {});
      case kTuple: {
        MIR_ASSIGN_OR_RETURN(std::vector<NodeId> items, PopToMark());
        return PushNew(ItemsNode(Node::Kind::kTuple, std::move(items)));
      }
      case kTuple1:
        return PushTuple(1);
      case kTuple2:
        return PushTuple(2);
      case kTuple3:
        return PushTuple(3);
      case kFrozenSet: {
        MIR_ASSIGN_OR_RETURN(std::vector<NodeId> items, PopToMark());
        return PushSet(Known::kFrozenSet, std::move(items));
      }
      case kAppend: {
        MIR_ASSIGN_OR_RETURN(const NodeId item, Pop());
        return Append({item});
      }
      case kAppends: {
        MIR_ASSIGN_OR_RETURN(const std::vector<NodeId> items, PopToMark());
        return Append(items);
      }
      case kAddItems: {
        MIR_ASSIGN_OR_RETURN(const std::vector<NodeId> items, PopToMark());
        MIR_ASSIGN_OR_RETURN(const NodeId set, Top());
        if (At(set).kind != Node::Kind::kObject ||
            At(set).known != Known::kSet) {
          return MalformedPickle("items are added to what is no set");
        }
        std::vector<NodeId>& list = At(At(set).items[0]).items;
        list.insert(list.end(), items.begin(), items.end());
        return absl::OkStatus();
      }
      case kSetItem: {
        MIR_ASSIGN_OR_RETURN(const NodeId value, Pop());
        MIR_ASSIGN_OR_RETURN(const NodeId key, Pop());
        return SetItems({key, value});
      }
      case kSetItems: {
        MIR_ASSIGN_OR_RETURN(const std::vector<NodeId> items, PopToMark());
        return SetItems(items);
      }
      case kGlobal: {
        MIR_ASSIGN_OR_RETURN(const absl::string_view module, Line());
        MIR_ASSIGN_OR_RETURN(const absl::string_view name, Line());
        return PushGlobal(module, name);
      }
      case kStackGlobal: {
        MIR_ASSIGN_OR_RETURN(const NodeId name, Pop());
        MIR_ASSIGN_OR_RETURN(const NodeId module, Pop());
        if (At(name).kind != Node::Kind::kText ||
            At(module).kind != Node::Kind::kText) {
          return MalformedPickle("a class whose name is no string");
        }
        return PushGlobal(At(module).text, At(name).text);
      }
      case kReduce:
      case kNewObj: {
        MIR_ASSIGN_OR_RETURN(const NodeId arguments, Pop());
        MIR_ASSIGN_OR_RETURN(const NodeId callable, Pop());
        MIR_ASSIGN_OR_RETURN(const NodeId result,
                             calls_.Call(callable, arguments));
        Push(result);
        return absl::OkStatus();
      }
      case kBuild: {
        MIR_ASSIGN_OR_RETURN(const NodeId state, Pop());
        MIR_ASSIGN_OR_RETURN(const NodeId target, Top());
        return calls_.SetState(target, state);
      }
      case kBinPersId: {
        MIR_ASSIGN_OR_RETURN(const NodeId id, Pop());
        MIR_ASSIGN_OR_RETURN(const NodeId storage, calls_.Storage(id));
        Push(storage);
        return absl::OkStatus();
      }
      default:
        return absl::InvalidArgumentError(
            absl::StrCat("pickle opcode 0x", absl::Hex(opcode), " at byte ",
                         position_ - 1, ", which torch.save never writes"));
    }
  }

  absl::Status Memoize(const absl::StatusOr<uint64_t>& index) {
    MIR_RETURN_IF_ERROR(index.status());
    MIR_ASSIGN_OR_RETURN(memo_[*index], Top());
    return absl::OkStatus();
  }

  absl::Status Recall(const absl::StatusOr<uint64_t>& index) {
    MIR_RETURN_IF_ERROR(index.status());
    const auto found = memo_.find(*index);
    if (found == memo_.end())
      return MalformedPickle("an unknown back reference");
    Push(found->second);
    return absl::OkStatus();
  }

  absl::Status PushLong(const absl::StatusOr<absl::string_view>& bytes) {
    MIR_RETURN_IF_ERROR(bytes.status());
    return PushNew(LongNode(*bytes, &graph_));
  }

  absl::Status PushText(const absl::StatusOr<absl::string_view>& text) {
    MIR_RETURN_IF_ERROR(text.status());
    if (!IsUtf8(*text)) return MalformedPickle("a string is not UTF-8");
    Node node;
    node.kind = Node::Kind::kText;
    node.text = std::string(*text);
    return PushNew(std::move(node));
  }

  absl::Status PushBytes(const absl::StatusOr<absl::string_view>& bytes) {
    MIR_RETURN_IF_ERROR(bytes.status());
    return PushNew(BytesNode(std::string(*bytes)));
  }

  // Python 2 did not tell text from bytes.
  absl::Status PushPython2String(
      const absl::StatusOr<absl::string_view>& bytes) {
    MIR_RETURN_IF_ERROR(bytes.status());
    return IsUtf8(*bytes) ? PushText(bytes) : PushBytes(bytes);
  }

  absl::Status PushTuple(size_t count) {
    if (stack_.size() < Floor() + count) {
      return MalformedPickle("the stack is empty");
    }
    std::vector<NodeId> items(stack_.end() - count, stack_.end());
    stack_.resize(stack_.size() - count);
    return PushNew(ItemsNode(Node::Kind::kTuple, std::move(items)));
  }

  absl::Status PushSet(Known known, std::vector<NodeId> items) {
    const NodeId list =
        graph_.Add(ItemsNode(Node::Kind::kList, std::move(items)));
    return PushNew(SetNode(known, list));
  }

  absl::Status Append(const std::vector<NodeId>& items) {
    MIR_ASSIGN_OR_RETURN(const NodeId id, Top());
    Node& list = At(id);
    if (list.kind != Node::Kind::kList) {
      return MalformedPickle("items are appended to what is no list");
    }
    list.items.insert(list.items.end(), items.begin(), items.end());
    return absl::OkStatus();
  }

  absl::Status SetItems(const std::vector<NodeId>& items) {
    MIR_ASSIGN_OR_RETURN(const NodeId id, Top());
    Node& dict = At(id);
    if (dict.kind != Node::Kind::kDict || items.size() % 2 != 0) {
      return MalformedPickle("items are set in what is no dict");
    }
    dict.items.insert(dict.items.end(), items.begin(), items.end());
    return absl::OkStatus();
  }

  // Classes.
  absl::Status PushGlobal(absl::string_view module, absl::string_view name) {
    if (module.size() + name.size() > kMaxClassName || !IsUtf8(module) ||
        !IsUtf8(name)) {
      return MalformedPickle("a class whose name is no name");
    }
    Node node;
    node.kind = Node::Kind::kGlobal;
    node.text = ModernName(module, name);
    const KnownClass identity = IdentifyClass(node.text);
    node.known = identity.known;
    node.dtype = identity.dtype;
    if (node.known == Known::kNothing && !options_.keep_unknown_classes) {
      return absl::PermissionDeniedError(absl::StrCat(
          "refuses ", Quoted(node.text),
          ": only tensors and plain Python data are loaded, and nothing is "
          "executed"));
    }
    return PushNew(std::move(node));
  }

  const absl::string_view input_;
  const UnpickleOptions options_;
  PickleGraph& graph_;
  PickleCalls calls_;
  size_t position_ = 0;
  bool stopped_ = false;
  std::vector<NodeId> stack_;
  std::vector<size_t> marks_;  // Sizes of the stack.
  absl::flat_hash_map<uint64_t, NodeId> memo_;
};

// Turns nodes into values, each once.
class Builder {
 public:
  Builder(
      const PickleGraph& graph,
      const std::function<absl::StatusOr<at::Storage>(const StorageRecord&)>&
          load)
      : graph_(graph),
        load_(load),
        values_(graph.nodes.size()),
        heights_(graph.nodes.size(), kUnseen),
        storages_(graph.storages.size()) {}

  absl::StatusOr<Value> Build(NodeId id, int depth) {
    int& height = heights_[id];
    if (height == kOpen) {
      return absl::InvalidArgumentError("a container contains itself");
    }
    if (height == kUnseen) {
      if (depth > kMaxNesting) return TooDeep();
      height = kOpen;
      int height_of_children = 0;
      MIR_ASSIGN_OR_RETURN(values_[id],
                           BuildNew(id, depth, &height_of_children));
      height = height_of_children;
    }
    if (depth + height > kMaxNesting) return TooDeep();
    return values_[id];
  }

 private:
  static constexpr int kUnseen = -1;
  static constexpr int kOpen = -2;

  static absl::Status TooDeep() {
    return absl::InvalidArgumentError(
        absl::StrCat("nested deeper than ", kMaxNesting, " levels"));
  }

  absl::StatusOr<Value> Child(NodeId id, int depth, int* height) {
    MIR_ASSIGN_OR_RETURN(Value value, Build(id, depth + 1));
    *height = std::max(*height, heights_[id] + 1);
    return value;
  }

  absl::StatusOr<Value> BuildNew(NodeId id, int depth, int* height) {
    const Node& node = graph_.nodes[id];
    switch (node.kind) {
      case Node::Kind::kNone:
        return Value();
      case Node::Kind::kBool:
        return Value(node.integer != 0);
      case Node::Kind::kInt:
        return Value(node.integer);
      case Node::Kind::kFloat: {
        double number = 0;
        std::memcpy(&number, &node.integer, sizeof(number));
        return Value(number);
      }
      case Node::Kind::kText:
        return Value(node.text);
      case Node::Kind::kBytes:
        return Value::Bytes(node.text);
      case Node::Kind::kList:
      case Node::Kind::kTuple: {
        std::vector<Value> items;
        items.reserve(node.items.size());
        for (const NodeId item : node.items) {
          MIR_ASSIGN_OR_RETURN(Value value, Child(item, depth, height));
          items.push_back(std::move(value));
        }
        return node.kind == Node::Kind::kList ? Value::List(std::move(items))
                                              : Value::Tuple(std::move(items));
      }
      case Node::Kind::kDict: {
        Dict dict(/*ordered=*/node.flag);
        for (size_t i = 0; i < node.items.size(); i += 2) {
          MIR_ASSIGN_OR_RETURN(const Value key,
                               Child(node.items[i], depth, height));
          MIR_ASSIGN_OR_RETURN(Value value,
                               Child(node.items[i + 1], depth, height));
          if (!dict.Set(key, std::move(value))) {
            return absl::InvalidArgumentError(
                absl::StrCat(key.string() == nullptr
                                 ? key.Describe()
                                 : absl::StrCat("a string of ",
                                                key.string()->size(), " bytes"),
                             " as the key of a dict"));
          }
        }
        if (node.integer != kNoNode) {
          MIR_ASSIGN_OR_RETURN(Value attributes,
                               Child(node.integer, depth, height));
          dict.set_attributes(std::move(attributes));
        }
        return Value(std::move(dict));
      }
      case Node::Kind::kGlobal:
        if (node.known == Known::kDtype) return Value(node.dtype);
        return Value(Object{node.text, {}, {}});
      case Node::Kind::kObject: {
        Object object;
        object.class_name = node.text;
        MIR_ASSIGN_OR_RETURN(object.args, Child(node.items[0], depth, height));
        if (node.integer != kNoNode) {
          MIR_ASSIGN_OR_RETURN(object.state,
                               Child(node.integer, depth, height));
        }
        return Value(std::move(object));
      }
      case Node::Kind::kStorage: {
        const int64_t itemsize =
            static_cast<int64_t>(c10::elementSize(node.dtype));
        return MakeTensor({node.integer,
                           node.dtype,
                           0,
                           {graph_.storages[node.integer].nbytes / itemsize},
                           {1}});
      }
      case Node::Kind::kTensor:
        return MakeTensor(graph_.tensors[node.integer]);
      case Node::Kind::kNumpyDtype:
        return Value(Object{"numpy.dtype", Value(node.text), {}});
      case Node::Kind::kNumpyArray:
        return MakeArray(node);
    }
    return MalformedPickle("an unknown kind of node");
  }

  absl::StatusOr<Value> MakeTensor(const TensorRecord& record) {
    std::optional<at::Storage>& storage = storages_[record.storage];
    if (!storage.has_value()) {
      MIR_ASSIGN_OR_RETURN(storage, load_(graph_.storages[record.storage]));
    }
    at::Tensor tensor;
    MIR_RETURN_IF_ERROR(CatchTorch([&] {
      tensor = at::empty(
          {0}, at::TensorOptions(storage->device()).dtype(record.dtype));
      tensor.set_(*storage, record.offset, record.sizes, record.strides);
      return absl::OkStatus();
    }));
    return Value(std::move(tensor));
  }

  absl::StatusOr<Value> MakeArray(const Node& node) {
    if (node.items.empty())
      return MalformedPickle("a NumPy array without data");
    std::vector<int64_t> sizes;
    for (const NodeId size : graph_.nodes[node.items[0]].items) {
      sizes.push_back(graph_.nodes[size].integer);
    }
    const Node& dtype = graph_.nodes[node.items[1]];
    std::string data = graph_.nodes[node.items[2]].text;
    const at::ScalarType type = *NumpyDtypeFromName(dtype.text);
    if (dtype.flag) {
      const size_t part =
          c10::elementSize(type) / (c10::isComplexType(type) ? 2 : 1);
      for (size_t i = 0; i + part <= data.size(); i += part) {
        std::reverse(data.begin() + i, data.begin() + i + part);
      }
    }
    // In Fortran's order the first index runs fastest.
    if (node.flag) std::reverse(sizes.begin(), sizes.end());
    at::Tensor tensor;
    MIR_RETURN_IF_ERROR(CatchTorch([&] {
      tensor = at::empty(sizes, at::TensorOptions().dtype(type));
      if (!data.empty()) {
        std::memcpy(tensor.mutable_data_ptr(), data.data(), data.size());
      }
      if (node.flag) {
        std::vector<int64_t> axes;
        for (int64_t axis = tensor.dim() - 1; axis >= 0; --axis) {
          axes.push_back(axis);
        }
        tensor = tensor.permute(axes);
      }
      return absl::OkStatus();
    }));
    return Value(std::move(tensor));
  }

  const PickleGraph& graph_;
  const std::function<absl::StatusOr<at::Storage>(const StorageRecord&)>& load_;
  std::vector<Value> values_;
  std::vector<int> heights_;  // Levels below the node; or kUnseen, kOpen.
  std::vector<std::optional<at::Storage>> storages_;
};

}  // namespace

ParsedPickle::ParsedPickle(std::unique_ptr<PickleGraph> graph)
    : graph_(std::move(graph)) {}
ParsedPickle::ParsedPickle(ParsedPickle&&) noexcept = default;
ParsedPickle& ParsedPickle::operator=(ParsedPickle&&) noexcept = default;
ParsedPickle::~ParsedPickle() = default;

size_t ParsedPickle::size() const { return graph_->size; }

const std::vector<StorageRecord>& ParsedPickle::storages() const {
  return graph_->storages;
}

absl::StatusOr<Value> ParsedPickle::Build(
    const std::function<absl::StatusOr<at::Storage>(const StorageRecord&)>&
        load) const {
  return Builder(*graph_, load).Build(graph_->root, /*depth=*/0);
}

absl::StatusOr<ParsedPickle> ParsePickle(absl::string_view bytes,
                                         const UnpickleOptions& options) {
  auto graph = std::make_unique<PickleGraph>();
  MIR_RETURN_IF_ERROR(Machine(bytes, options, graph.get()).Run());
  return ParsedPickle(std::move(graph));
}

}  // namespace mir::checkpoint
