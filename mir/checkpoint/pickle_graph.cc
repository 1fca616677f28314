#include "mir/checkpoint/pickle_graph.h"

#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace mir::checkpoint {

NodeId PickleGraph::Add(Node node) {
  nodes.push_back(std::move(node));
  return static_cast<NodeId>(nodes.size() - 1);
}

Node BoolNode(bool value) {
  Node node;
  node.kind = Node::Kind::kBool;
  node.integer = value;
  return node;
}

Node IntNode(int64_t value) {
  Node node;
  node.kind = Node::Kind::kInt;
  node.integer = value;
  return node;
}

Node LongNode(absl::string_view bytes, PickleGraph* graph) {
  const auto byte = [&](size_t i) {
    return static_cast<unsigned char>(bytes[i]);
  };
  const unsigned char sign =
      !bytes.empty() && byte(bytes.size() - 1) >= 0x80 ? 0xff : 0;
  while (bytes.size() > 8 && byte(bytes.size() - 1) == sign &&
         byte(bytes.size() - 2) >> 7 == sign >> 7) {
    bytes.remove_suffix(1);
  }
  if (bytes.size() > 8) {
    return ObjectNode(Known::kNothing, "builtins.int",
                      graph->Add(BytesNode(std::string(bytes))));
  }
  uint64_t value = sign == 0 ? 0 : ~uint64_t{0};
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | byte(i);
  return IntNode(static_cast<int64_t>(value));
}

Node FloatNode(double value) {
  Node node;
  node.kind = Node::Kind::kFloat;
  std::memcpy(&node.integer, &value, sizeof(value));
  return node;
}

Node BytesNode(std::string bytes) {
  Node node;
  node.kind = Node::Kind::kBytes;
  node.text = std::move(bytes);
  return node;
}

Node ItemsNode(Node::Kind kind, std::vector<NodeId> items) {
  Node node;
  node.kind = kind;
  node.items = std::move(items);
  return node;
}

Node DictNode(bool ordered, std::vector<NodeId> items) {
  Node node = ItemsNode(Node::Kind::kDict, std::move(items));
  node.flag = ordered;
  node.integer = kNoNode;
  return node;
}

Node ObjectNode(Known known, std::string class_name, NodeId args) {
  Node node = ItemsNode(Node::Kind::kObject, {args});
  node.known = known;
  node.integer = kNoNode;
  node.text = std::move(class_name);
  return node;
}

Node SetNode(Known known, NodeId list) {
  return ObjectNode(
      known, known == Known::kSet ? "builtins.set" : "builtins.frozenset",
      list);
}

absl::Status MalformedPickle(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed pickle: ", what));
}

std::string Quoted(absl::string_view text) {
  constexpr size_t kShown = 200;
  return absl::StrCat("'", absl::Utf8SafeCHexEscape(text.substr(0, kShown)),
                      "'");
}

}  // namespace mir::checkpoint
