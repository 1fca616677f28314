#ifndef MIR_CHECKPOINT_VALUE_H_
#define MIR_CHECKPOINT_VALUE_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"

namespace mir::checkpoint {

class Dict;
struct Object;

// How deep lists, tuples, dicts and objects may be nested in a file.
inline constexpr int kMaxNesting = 200;

// What a Python checkpoint holds: a scalar, a string, a tensor, or a list,
// tuple or dict of such values.
//
// A copy is cheap and independent: containers and strings are shared until one
// of the copies is changed. Tensors are handles, as everywhere in ATen: copies
// of a Value share their tensors' data. Different values may be used by
// different threads; one value may be read by several.
class Value {
 public:
  enum class Kind {
    kNone,
    kBool,
    kInt,
    kFloat,
    kString,  // UTF-8.
    kBytes,
    kTensor,
    kDtype,  // torch.float32 and its like.
    kList,
    kTuple,
    kDict,    // Plain or OrderedDict.
    kObject,  // Python objects that have no counterpart here.
  };

  Value();  // None.
  // Out of line: each user would otherwise carry the code of every kind.
  ~Value();
  Value(const Value&);
  Value(Value&&) noexcept;
  Value& operator=(const Value&);
  Value& operator=(Value&&) noexcept;

  template <typename T, std::enable_if_t<std::is_same_v<T, bool>, int> = 0>
  Value(T value) : data_(value) {}
  template <typename T,
            std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>,
                             int> = 0>
  Value(T value) : data_(static_cast<int64_t>(value)) {
    if (std::is_unsigned_v<T> && static_cast<int64_t>(value) < 0) {
      *this = BigInt(static_cast<uint64_t>(value));
    }
  }
  Value(double value) : data_(value) {}
  Value(std::string value);
  Value(absl::string_view value) : Value(std::string(value)) {}
  Value(const char* value) : Value(std::string(value)) {}
  Value(at::Tensor value) : data_(std::move(value)) {}
  Value(at::ScalarType value) : data_(value) {}
  Value(Dict value);
  Value(Object value);
  static Value Bytes(std::string bytes);
  static Value List(std::vector<Value> items = {});
  static Value Tuple(std::vector<Value> items = {});
  // An int beyond int64_t, as an Object.
  static Value BigInt(uint64_t value);

  Kind kind() const;
  bool is_none() const { return kind() == Kind::kNone; }

  // What the value holds; empty or null where it is of another kind.
  std::optional<bool> boolean() const;
  std::optional<int64_t> integer() const;
  std::optional<uint64_t> unsigned_integer() const;  // An int that fits.
  std::optional<double> number() const;              // A float or an int.
  const std::string* string() const;
  const std::string* bytes() const;
  const at::Tensor* tensor() const;
  std::optional<at::ScalarType> dtype() const;
  const std::vector<Value>* items() const;  // Of a list or a tuple.
  const Dict* dict() const;
  const Object* object() const;

  // The same for changing it; copies made before keep what they had.
  std::vector<Value>* mutable_items();
  Dict* mutable_dict();

  // The entry of a dict under a string or an int; null where this is no dict
  // or has no such entry.
  const Value* Find(absl::string_view key) const;
  const Value* Find(int64_t key) const;

  // What it is, for messages: "None", "a list of 3", "a float32 tensor [2, 3]".
  std::string Describe() const;

  // The same for all values that share one container or string, null for
  // other kinds: how a writer keeps what is shared shared.
  const void* identity() const;

 private:
  struct TextData {
    bool utf8 = true;
    std::shared_ptr<const std::string> text;
  };
  struct SequenceData {
    bool tuple = false;
    std::shared_ptr<std::vector<Value>> items;
  };
  std::variant<std::monostate, bool, int64_t, double, TextData, at::Tensor,
               at::ScalarType, SequenceData, std::shared_ptr<Dict>,
               std::shared_ptr<const Object>>
      data_;
};

// A Python dict: entries in the order in which they were added.
//
// Keys are strings, ints, bools, floats, bytes, dtypes, None or tuples of
// these, equal as in Python (1, 1.0 and True are one key).
class Dict {
 public:
  // `ordered`: a collections.OrderedDict, as module.state_dict() returns.
  explicit Dict(bool ordered = false) : ordered_(ordered) {}

  bool ordered() const { return ordered_; }
  size_t size() const { return entries_.size(); }
  const std::vector<std::pair<Value, Value>>& entries() const {
    return entries_;
  }

  // Adds an entry, or replaces the value of the one with this key. Returns
  // false, and changes nothing, if `key` cannot be a key: a list, a dict, a
  // tensor, an object, a tuple with one of them or with more than 1024
  // elements, a string above 64 KiB.
  bool Set(const Value& key, Value value);

  // The value under a key; null where there is none.
  const Value* Find(absl::string_view key) const;
  const Value* Find(int64_t key) const;
  const Value* FindKey(const Value& key) const;

  // What Python keeps in the object's __dict__: a dict with `_metadata` for a
  // state_dict, else None.
  const Value& attributes() const { return attributes_; }
  void set_attributes(Value attributes) { attributes_ = std::move(attributes); }

  // "'epoch', 'state_dict', ...": the first keys, for messages.
  std::string DescribeKeys() const;

 private:
  // The position of the key that `is_key` accepts, whose hash is `hash`;
  // size() where there is none.
  template <typename IsKey>
  size_t Position(size_t hash, const IsKey& is_key) const;
  const Value* At(size_t position) const;

  bool ordered_ = false;
  std::vector<std::pair<Value, Value>> entries_;
  // Positions by the key's hash; empty while the dict is small.
  std::unordered_multimap<size_t, size_t> index_;
  Value attributes_;
};

// A Python object without a counterpart here. Nothing of it was executed.
//
// The harmless kinds builtins.set, builtins.frozenset (args: one list),
// builtins.complex (args: two floats), builtins.int (args: one bytes, two's
// complement, little end first; an int beyond 64 bits) and torch.device are
// read so always; others only where the reader was asked to keep them.
struct Object {
  std::string class_name;  // With its module: "argparse.Namespace".
  Value args;              // What it was called with; None for the bare class.
  Value state;             // What it was given after that, else None.
};

// "None", "bool", ...: the kind's name in Python.
absl::string_view KindName(Value::Kind kind);

// The name in Python without "torch.": "float32", "int64".
absl::string_view DtypeName(at::ScalarType dtype);
// The dtype of such a name; empty where there is none.
std::optional<at::ScalarType> DtypeFromName(absl::string_view name);

}  // namespace mir::checkpoint

#endif  // MIR_CHECKPOINT_VALUE_H_
