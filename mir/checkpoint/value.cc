#include "mir/checkpoint/value.h"

#include <algorithm>
#include <tuple>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace mir::checkpoint {
namespace {

constexpr int kMaxKeyElements = 1024;
constexpr size_t kMaxKeySize = 64 << 10;
constexpr size_t kSmallDict = 8;  // Searched from end to end.

struct DtypeEntry {
  at::ScalarType dtype;
  absl::string_view name;
};
constexpr DtypeEntry kDtypes[] = {
    {at::ScalarType::Byte, "uint8"},
    {at::ScalarType::Char, "int8"},
    {at::ScalarType::Short, "int16"},
    {at::ScalarType::Int, "int32"},
    {at::ScalarType::Long, "int64"},
    {at::ScalarType::Half, "float16"},
    {at::ScalarType::Float, "float32"},
    {at::ScalarType::Double, "float64"},
    {at::ScalarType::ComplexHalf, "complex32"},
    {at::ScalarType::ComplexFloat, "complex64"},
    {at::ScalarType::ComplexDouble, "complex128"},
    {at::ScalarType::Bool, "bool"},
    {at::ScalarType::BFloat16, "bfloat16"},
    {at::ScalarType::Float8_e5m2, "float8_e5m2"},
    {at::ScalarType::Float8_e4m3fn, "float8_e4m3fn"},
    {at::ScalarType::Float8_e5m2fnuz, "float8_e5m2fnuz"},
    {at::ScalarType::Float8_e4m3fnuz, "float8_e4m3fnuz"},
    {at::ScalarType::Float8_e8m0fnu, "float8_e8m0fnu"},
    {at::ScalarType::UInt16, "uint16"},
    {at::ScalarType::UInt32, "uint32"},
    {at::ScalarType::UInt64, "uint64"},
};

bool IsNumber(const Value& value) {
  return value.boolean().has_value() || value.number().has_value();
}

double AsNumber(const Value& value) {
  return value.boolean().has_value() ? *value.boolean() : *value.number();
}

template <typename... Parts>
size_t MixHash(const Parts&... parts) {
  using Tuple = std::tuple<Parts...>;
  return typename absl::flat_hash_set<Tuple>::hasher()(Tuple(parts...));
}

size_t HashNumber(double number) { return MixHash(1, number); }
size_t HashString(absl::string_view text) { return MixHash(2, text); }

// Mixes the hash of a key's kind and content. Equal keys have equal hashes;
// false for what cannot be a key. `budget` counts the elements of nested
// tuples, which may share their parts and so be far larger than their file.
bool HashKey(const Value& key, int* budget, size_t* hash) {
  switch (key.kind()) {
    case Value::Kind::kNone:
      *hash = 0;
      return true;
    case Value::Kind::kBool:
    case Value::Kind::kInt:
    case Value::Kind::kFloat:
      *hash = HashNumber(AsNumber(key));
      return true;
    case Value::Kind::kString:
      *hash = HashString(*key.string());
      return key.string()->size() <= kMaxKeySize;
    case Value::Kind::kBytes:
      *hash = MixHash(3, absl::string_view(*key.bytes()));
      return key.bytes()->size() <= kMaxKeySize;
    case Value::Kind::kDtype:
      *hash = MixHash(4, static_cast<int>(*key.dtype()));
      return true;
    case Value::Kind::kTuple: {
      *hash = 5;
      for (const Value& item : *key.items()) {
        size_t one = 0;
        if (--*budget < 0 || !HashKey(item, budget, &one)) return false;
        *hash = MixHash(*hash, one);
      }
      return true;
    }
    case Value::Kind::kTensor:
    case Value::Kind::kList:
    case Value::Kind::kDict:
    case Value::Kind::kObject:
      return false;
  }
  return false;
}

// Whether two values that HashKey accepts are one key.
bool KeysEqual(const Value& a, const Value& b) {
  if (a.identity() != nullptr && a.identity() == b.identity()) return true;
  if (a.integer().has_value() && b.integer().has_value()) {
    return *a.integer() == *b.integer();
  }
  if (IsNumber(a) && IsNumber(b)) return AsNumber(a) == AsNumber(b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Value::Kind::kNone:
      return true;
    case Value::Kind::kString:
      return *a.string() == *b.string();
    case Value::Kind::kBytes:
      return *a.bytes() == *b.bytes();
    case Value::Kind::kDtype:
      return *a.dtype() == *b.dtype();
    case Value::Kind::kTuple:
      return std::equal(a.items()->begin(), a.items()->end(),
                        b.items()->begin(), b.items()->end(), KeysEqual);
    default:
      return false;
  }
}

}  // namespace

Value::Value() = default;
Value::~Value() = default;
Value::Value(const Value&) = default;
Value::Value(Value&&) noexcept = default;
Value& Value::operator=(const Value&) = default;
Value& Value::operator=(Value&&) noexcept = default;

Value::Value(Dict value) : data_(std::make_shared<Dict>(std::move(value))) {}

Value::Value(Object value)
    : data_(std::make_shared<const Object>(std::move(value))) {}

Value::Value(std::string value)
    : data_(TextData{/*utf8=*/true,
                     std::make_shared<const std::string>(std::move(value))}) {}

Value Value::Bytes(std::string bytes) {
  Value value;
  value.data_ = TextData{/*utf8=*/false,
                         std::make_shared<const std::string>(std::move(bytes))};
  return value;
}

Value Value::List(std::vector<Value> items) {
  Value value;
  value.data_ = SequenceData{
      /*tuple=*/false, std::make_shared<std::vector<Value>>(std::move(items))};
  return value;
}

Value Value::Tuple(std::vector<Value> items) {
  Value value;
  value.data_ = SequenceData{
      /*tuple=*/true, std::make_shared<std::vector<Value>>(std::move(items))};
  return value;
}

Value Value::BigInt(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  }
  bytes.push_back('\0');  // The sign.
  return Object{"builtins.int", Bytes(std::move(bytes)), Value()};
}

Value::Kind Value::kind() const {
  switch (data_.index()) {
    case 0:
      return Kind::kNone;
    case 1:
      return Kind::kBool;
    case 2:
      return Kind::kInt;
    case 3:
      return Kind::kFloat;
    case 4:
      return std::get<TextData>(data_).utf8 ? Kind::kString : Kind::kBytes;
    case 5:
      return Kind::kTensor;
    case 6:
      return Kind::kDtype;
    case 7:
      return std::get<SequenceData>(data_).tuple ? Kind::kTuple : Kind::kList;
    case 8:
      return Kind::kDict;
    default:
      return Kind::kObject;
  }
}

std::optional<bool> Value::boolean() const {
  const bool* value = std::get_if<bool>(&data_);
  return value == nullptr ? std::nullopt : std::optional<bool>(*value);
}

std::optional<int64_t> Value::integer() const {
  const int64_t* value = std::get_if<int64_t>(&data_);
  return value == nullptr ? std::nullopt : std::optional<int64_t>(*value);
}

std::optional<uint64_t> Value::unsigned_integer() const {
  if (const int64_t* value = std::get_if<int64_t>(&data_)) {
    return *value < 0 ? std::nullopt : std::optional<uint64_t>(*value);
  }
  const Object* big = object();
  if (big == nullptr || big->class_name != "builtins.int" ||
      big->args.bytes() == nullptr) {
    return std::nullopt;
  }
  const std::string& bytes = *big->args.bytes();
  if (bytes.size() != 9 || bytes[8] != 0) return std::nullopt;
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

std::optional<double> Value::number() const {
  if (const double* value = std::get_if<double>(&data_)) return *value;
  if (const int64_t* value = std::get_if<int64_t>(&data_)) {
    return static_cast<double>(*value);
  }
  return std::nullopt;
}

const std::string* Value::string() const {
  const TextData* data = std::get_if<TextData>(&data_);
  return data == nullptr || !data->utf8 ? nullptr : data->text.get();
}

const std::string* Value::bytes() const {
  const TextData* data = std::get_if<TextData>(&data_);
  return data == nullptr || data->utf8 ? nullptr : data->text.get();
}

const at::Tensor* Value::tensor() const {
  return std::get_if<at::Tensor>(&data_);
}

std::optional<at::ScalarType> Value::dtype() const {
  const at::ScalarType* value = std::get_if<at::ScalarType>(&data_);
  return value == nullptr ? std::nullopt
                          : std::optional<at::ScalarType>(*value);
}

const std::vector<Value>* Value::items() const {
  const SequenceData* data = std::get_if<SequenceData>(&data_);
  return data == nullptr ? nullptr : data->items.get();
}

const Dict* Value::dict() const {
  const auto* data = std::get_if<std::shared_ptr<Dict>>(&data_);
  return data == nullptr ? nullptr : data->get();
}

const Object* Value::object() const {
  const auto* data = std::get_if<std::shared_ptr<const Object>>(&data_);
  return data == nullptr ? nullptr : data->get();
}

std::vector<Value>* Value::mutable_items() {
  SequenceData* data = std::get_if<SequenceData>(&data_);
  if (data == nullptr) return nullptr;
  if (data->items.use_count() > 1) {
    data->items = std::make_shared<std::vector<Value>>(*data->items);
  }
  return data->items.get();
}

Dict* Value::mutable_dict() {
  auto* data = std::get_if<std::shared_ptr<Dict>>(&data_);
  if (data == nullptr) return nullptr;
  if (data->use_count() > 1) *data = std::make_shared<Dict>(**data);
  return data->get();
}

const Value* Value::Find(absl::string_view key) const {
  return dict() == nullptr ? nullptr : dict()->Find(key);
}

const Value* Value::Find(int64_t key) const {
  return dict() == nullptr ? nullptr : dict()->Find(key);
}

std::string Value::Describe() const {
  switch (kind()) {
    case Kind::kTensor: {
      if (!tensor()->defined()) return "an undefined tensor";
      return absl::StrCat("a ", DtypeName(tensor()->scalar_type()), " tensor [",
                          absl::StrJoin(tensor()->sizes(), ", "), "]");
    }
    case Kind::kDtype:
      return absl::StrCat("torch.", DtypeName(*dtype()));
    case Kind::kList:
      return absl::StrCat("a list of ", items()->size());
    case Kind::kTuple:
      return absl::StrCat("a tuple of ", items()->size());
    case Kind::kDict:
      return absl::StrCat("a dict of ", dict()->size());
    case Kind::kObject:
      return absl::StrCat("an object of ", object()->class_name);
    case Kind::kNone:
      return "None";
    case Kind::kInt:
      return absl::StrCat("the int ", *integer());
    default:
      return absl::StrCat("a ", KindName(kind()));
  }
}

const void* Value::identity() const {
  switch (kind()) {
    case Kind::kString:
      return string();
    case Kind::kBytes:
      return bytes();
    case Kind::kList:
    case Kind::kTuple:
      return items();
    case Kind::kDict:
      return dict();
    case Kind::kObject:
      return object();
    default:
      return nullptr;
  }
}

template <typename IsKey>
size_t Dict::Position(size_t hash, const IsKey& is_key) const {
  if (index_.empty()) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (is_key(entries_[i].first)) return i;
    }
    return entries_.size();
  }
  const auto [first, last] = index_.equal_range(hash);
  for (auto candidate = first; candidate != last; ++candidate) {
    if (is_key(entries_[candidate->second].first)) return candidate->second;
  }
  return entries_.size();
}

bool Dict::Set(const Value& key, Value value) {
  int budget = kMaxKeyElements;
  size_t hash = 0;
  if (!HashKey(key, &budget, &hash)) return false;
  const size_t position = Position(
      hash, [&](const Value& candidate) { return KeysEqual(candidate, key); });
  if (position < entries_.size()) {
    entries_[position].second = std::move(value);
    return true;
  }
  entries_.emplace_back(key, std::move(value));
  if (entries_.size() == kSmallDict + 1) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      budget = kMaxKeyElements;
      HashKey(entries_[i].first, &budget, &hash);
      index_.emplace(hash, i);
    }
  } else if (entries_.size() > kSmallDict) {
    index_.emplace(hash, position);
  }
  return true;
}

const Value* Dict::Find(absl::string_view key) const {
  return At(Position(HashString(key), [&](const Value& candidate) {
    return candidate.string() != nullptr && *candidate.string() == key;
  }));
}

const Value* Dict::Find(int64_t key) const {
  return At(Position(
      HashNumber(static_cast<double>(key)), [&](const Value& candidate) {
        return IsNumber(candidate) &&
               (candidate.integer().has_value() ? *candidate.integer() == key
                                                : AsNumber(candidate) == key);
      }));
}

const Value* Dict::FindKey(const Value& key) const {
  int budget = kMaxKeyElements;
  size_t hash = 0;
  if (!HashKey(key, &budget, &hash)) return nullptr;
  return At(Position(
      hash, [&](const Value& candidate) { return KeysEqual(candidate, key); }));
}

const Value* Dict::At(size_t position) const {
  return position < entries_.size() ? &entries_[position].second : nullptr;
}

std::string Dict::DescribeKeys() const {
  constexpr size_t kShown = 8;
  if (entries_.empty()) return "none";
  std::vector<std::string> keys;
  for (size_t i = 0; i < std::min(kShown, entries_.size()); ++i) {
    const Value& key = entries_[i].first;
    keys.push_back(
        key.string() != nullptr
            ? absl::StrCat("'", absl::Utf8SafeCHexEscape(*key.string()), "'")
            : key.Describe());
  }
  if (entries_.size() > kShown) {
    keys.push_back(absl::StrCat("... (", entries_.size(), " in all)"));
  }
  return absl::StrJoin(keys, ", ");
}

absl::string_view KindName(Value::Kind kind) {
  switch (kind) {
    case Value::Kind::kNone:
      return "None";
    case Value::Kind::kBool:
      return "bool";
    case Value::Kind::kInt:
      return "int";
    case Value::Kind::kFloat:
      return "float";
    case Value::Kind::kString:
      return "str";
    case Value::Kind::kBytes:
      return "bytes";
    case Value::Kind::kTensor:
      return "Tensor";
    case Value::Kind::kDtype:
      return "dtype";
    case Value::Kind::kList:
      return "list";
    case Value::Kind::kTuple:
      return "tuple";
    case Value::Kind::kDict:
      return "dict";
    case Value::Kind::kObject:
      return "object";
  }
  return "unknown";
}

absl::string_view DtypeName(at::ScalarType dtype) {
  for (const DtypeEntry& entry : kDtypes) {
    if (entry.dtype == dtype) return entry.name;
  }
  return c10::toString(dtype);
}

std::optional<at::ScalarType> DtypeFromName(absl::string_view name) {
  for (const DtypeEntry& entry : kDtypes) {
    if (entry.name == name) return entry.dtype;
  }
  return std::nullopt;
}

}  // namespace mir::checkpoint
