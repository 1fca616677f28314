#include "mir/checkpoint/pickle.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstring>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "mir/base/status_macros.h"
#include "mir/checkpoint/python_classes.h"
#include "mir/checkpoint/utf8.h"

namespace mir::checkpoint {
namespace {

// As many entries as Python's pickle writes at once.
constexpr size_t kBatch = 1000;

class Pickler {
 public:
  absl::StatusOr<Pickled> Run(const Value& value) {
    out_.bytes = "\x80\x02";
    MIR_RETURN_IF_ERROR(Write(value, /*depth=*/0));
    out_.bytes += '.';
    return std::move(out_);
  }

 private:
  // Where in the value the writer is, for errors: "['optimizer']['state'][0]".
  class Place {
   public:
    Place(std::vector<std::string>* path, std::string part) : path_(path) {
      path_->push_back(std::move(part));
    }
    ~Place() { path_->pop_back(); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

   private:
    std::vector<std::string>* path_;
  };

  absl::Status Refuse(absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot save ", path_.empty() ? "the value" : "",
                     absl::StrJoin(path_, ""), ": ", what));
  }

  void Number(uint64_t number, int byte_count) {
    for (int i = 0; i < byte_count; ++i) {
      out_.bytes += static_cast<char>(number >> (8 * i) & 0xff);
    }
  }

  void Put() { WriteMemo('q', 'r', memo_size_++); }
  void Get(uint32_t index) { WriteMemo('h', 'j', index); }
  void WriteMemo(char short_code, char long_code, uint32_t index) {
    if (index < 256) {
      out_.bytes += short_code;
      Number(index, 1);
    } else {
      out_.bytes += long_code;
      Number(index, 4);
    }
  }

  void Global(absl::string_view module, absl::string_view name) {
    const std::string code = absl::StrCat("c", module, "\n", name, "\n");
    const auto [known, added] = globals_.try_emplace(code, memo_size_);
    if (!added) return Get(known->second);
    out_.bytes += code;
    Put();
  }

  void Int(int64_t value) {
    if (value >= 0 && value < 256) {
      out_.bytes += 'K';
      Number(value, 1);
    } else if (value >= 0 && value < 65536) {
      out_.bytes += 'M';
      Number(value, 2);
    } else if (value >= std::numeric_limits<int32_t>::min() &&
               value <= std::numeric_limits<int32_t>::max()) {
      out_.bytes += 'J';
      Number(static_cast<uint32_t>(value), 4);
    } else {
      out_.bytes += "\x8a\x08";
      Number(static_cast<uint64_t>(value), 8);
    }
  }

  void Float(double value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    out_.bytes += 'G';
    Number(__builtin_bswap64(bits), 8);
  }

  absl::Status Text(absl::string_view text) {
    if (text.size() > std::numeric_limits<uint32_t>::max()) {
      return Refuse("a string above 4 GiB");
    }
    if (!IsUtf8(text)) return Refuse("the string is not UTF-8");
    const auto [known, added] = texts_.try_emplace(text, memo_size_);
    if (!added) {
      Get(known->second);
      return absl::OkStatus();
    }
    out_.bytes += 'X';
    Number(text.size(), 4);
    absl::StrAppend(&out_.bytes, text);
    Put();
    return absl::OkStatus();
  }

  // As Python's protocol 2, which has no opcode for bytes.
  absl::Status Bytes(absl::string_view bytes) {
    Global("_codecs", "encode");
    MIR_RETURN_IF_ERROR(Text(Utf8FromLatin1(bytes)));
    MIR_RETURN_IF_ERROR(Text("latin1"));
    out_.bytes += "\x86R";
    return absl::OkStatus();
  }

  absl::Status Write(const Value& value, int depth) {
    if (depth > kMaxNesting) {
      return absl::InvalidArgumentError(absl::StrCat(
          "cannot save a value nested deeper than ", kMaxNesting, " levels"));
    }
    // Strings are shared by content, all else by identity.
    const void* identity =
        value.string() == nullptr ? value.identity() : nullptr;
    if (identity != nullptr) {
      if (const auto known = memo_.find(identity); known != memo_.end()) {
        Get(known->second);
        return absl::OkStatus();
      }
    }
    switch (value.kind()) {
      case Value::Kind::kNone:
        out_.bytes += 'N';
        return absl::OkStatus();
      case Value::Kind::kBool:
        out_.bytes += *value.boolean() ? '\x88' : '\x89';
        return absl::OkStatus();
      case Value::Kind::kInt:
        Int(*value.integer());
        return absl::OkStatus();
      case Value::Kind::kFloat:
        Float(*value.number());
        return absl::OkStatus();
      case Value::Kind::kString:
        return Text(*value.string());
      case Value::Kind::kBytes:
        MIR_RETURN_IF_ERROR(Bytes(*value.bytes()));
        break;
      case Value::Kind::kTensor:
        return Tensor(*value.tensor());
      case Value::Kind::kDtype:
        return DtypeGlobal(*value.dtype());
      case Value::Kind::kList:
        return List(value, depth);
      case Value::Kind::kTuple:
        MIR_RETURN_IF_ERROR(Tuple(*value.items(), depth));
        break;
      case Value::Kind::kDict:
        return WriteDict(value, depth);
      case Value::Kind::kObject:
        MIR_RETURN_IF_ERROR(WriteObject(*value.object(), depth));
        break;
    }
    Remember(identity);
    return absl::OkStatus();
  }

  void Remember(const void* identity) {
    memo_.emplace(identity, memo_size_);
    Put();
  }

  absl::Status List(const Value& value, int depth) {
    out_.bytes += ']';
    Remember(value.identity());
    return Appends(*value.items(), depth);
  }

  absl::Status Appends(const std::vector<Value>& items, int depth) {
    for (size_t begin = 0; begin < items.size(); begin += kBatch) {
      out_.bytes += '(';
      for (size_t i = begin; i < items.size() && i < begin + kBatch; ++i) {
        const Place place(&path_, absl::StrCat("[", i, "]"));
        MIR_RETURN_IF_ERROR(Write(items[i], depth + 1));
      }
      out_.bytes += 'e';
    }
    return absl::OkStatus();
  }

  absl::Status Tuple(const std::vector<Value>& items, int depth) {
    if (items.empty()) {
      out_.bytes += ')';
      return absl::OkStatus();
    }
    if (items.size() > 3) out_.bytes += '(';
    for (size_t i = 0; i < items.size(); ++i) {
      const Place place(&path_, absl::StrCat("[", i, "]"));
      MIR_RETURN_IF_ERROR(Write(items[i], depth + 1));
    }
    out_.bytes +=
        items.size() > 3 ? 't' : static_cast<char>(0x85 + items.size() - 1);
    return absl::OkStatus();
  }

  absl::Status WriteDict(const Value& value, int depth) {
    const Dict& dict = *value.dict();
    if (dict.ordered()) {
      Global("collections", "OrderedDict");
      out_.bytes += ")R";
    } else {
      out_.bytes += '}';
    }
    Remember(value.identity());
    const auto& entries = dict.entries();
    for (size_t begin = 0; begin < entries.size(); begin += kBatch) {
      out_.bytes += '(';
      for (size_t i = begin; i < entries.size() && i < begin + kBatch; ++i) {
        const auto& [key, item] = entries[i];
        const Place place(&path_, key.string() != nullptr
                                      ? absl::StrCat("['", *key.string(), "']")
                                      : absl::StrCat("[", key.Describe(), "]"));
        MIR_RETURN_IF_ERROR(Write(key, depth + 1));
        MIR_RETURN_IF_ERROR(Write(item, depth + 1));
      }
      out_.bytes += 'u';
    }
    if (dict.ordered() && !dict.attributes().is_none()) {
      const Place place(&path_, ".__dict__");
      if (dict.attributes().dict() == nullptr) {
        return Refuse("the attributes of an OrderedDict are no dict");
      }
      MIR_RETURN_IF_ERROR(Write(dict.attributes(), depth + 1));
      out_.bytes += 'b';
    }
    return absl::OkStatus();
  }

  absl::Status WriteObject(const Object& object, int depth) {
    const auto refuse = [&] {
      return Refuse(absl::StrCat("an object of ", object.class_name,
                                 ", which torch.load(weights_only=True) would "
                                 "not accept from this writer"));
    };
    if (!object.state.is_none()) return refuse();
    if (object.class_name == "builtins.int") {
      const std::string* bytes = object.args.bytes();
      if (bytes == nullptr || bytes->size() > 255) return refuse();
      out_.bytes += '\x8a';
      Number(bytes->size(), 1);
      out_.bytes += *bytes;
      return absl::OkStatus();
    }
    if (object.class_name == "builtins.set" &&
        object.args.kind() == Value::Kind::kList) {
      Global("__builtin__", "set");
      MIR_RETURN_IF_ERROR(Write(object.args, depth + 1));
      out_.bytes += "\x85R";
      return absl::OkStatus();
    }
    if (object.args.kind() == Value::Kind::kTuple &&
        (object.class_name == "builtins.complex" ||
         object.class_name == "torch.device")) {
      if (object.class_name == "torch.device") {
        Global("torch", "device");
      } else {
        Global("__builtin__", "complex");
      }
      MIR_RETURN_IF_ERROR(Write(object.args, depth + 1));
      out_.bytes += 'R';
      return absl::OkStatus();
    }
    return refuse();
  }

  absl::Status DtypeGlobal(at::ScalarType dtype) {
    if (!DtypeFromName(DtypeName(dtype)).has_value()) {
      return Refuse(absl::StrCat("dtype ", c10::toString(dtype)));
    }
    Global("torch", DtypeName(dtype));
    return absl::OkStatus();
  }

  absl::Status Tensor(const at::Tensor& tensor) {
    if (!tensor.defined()) return Refuse("the tensor is undefined");
    if (tensor.layout() != at::kStrided || !tensor.has_storage() ||
        tensor.is_quantized() || tensor.is_nested() || tensor.is_meta()) {
      return Refuse("only dense tensors that hold data can be saved");
    }
    if (tensor.is_conj() || tensor.is_neg()) {
      return Refuse("a lazy conjugate; save resolve_conj().resolve_neg()");
    }
    const at::ScalarType dtype = tensor.scalar_type();
    if (!DtypeFromName(DtypeName(dtype)).has_value()) {
      return Refuse(absl::StrCat("dtype ", c10::toString(dtype)));
    }
    const absl::string_view storage_class = StorageClassName(dtype);
    const int64_t itemsize = static_cast<int64_t>(c10::elementSize(dtype));

    const bool typed = !storage_class.empty();
    Global("torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    out_.bytes += "((";
    MIR_RETURN_IF_ERROR(Text("storage"));
    if (typed) {
      Global("torch", storage_class);
    } else {
      Global("torch.storage", "UntypedStorage");
    }
    const size_t key =
        StorageKey(tensor, typed ? dtype : at::kByte, typed ? itemsize : 1);
    MIR_RETURN_IF_ERROR(Text(absl::StrCat(key)));
    MIR_RETURN_IF_ERROR(Text("cpu"));
    Int(out_.storages[key].nbytes / (typed ? itemsize : 1));
    out_.bytes += "tQ";
    Int(tensor.storage_offset());
    Integers(tensor.sizes());
    Integers(tensor.strides());
    out_.bytes += '\x89';  // requires_grad
    Global("collections", "OrderedDict");
    out_.bytes += ")R";  // The hooks: none.
    if (!typed) Global("torch", DtypeName(dtype));
    out_.bytes += "tR";
    return absl::OkStatus();
  }

  // The number of the storage; torch.load takes the dtype of a storage's first
  // use for all its uses, so that another dtype needs a storage of its own.
  size_t StorageKey(const at::Tensor& tensor, at::ScalarType dtype,
                    int64_t itemsize) {
    const at::Storage& storage = tensor.storage();
    const auto [known, added] = storages_.try_emplace(
        std::make_pair(storage.unsafeGetStorageImpl(), dtype),
        out_.storages.size());
    if (added) {
      const int64_t nbytes = static_cast<int64_t>(storage.nbytes());
      out_.storages.push_back({storage, nbytes / itemsize * itemsize});
    }
    return known->second;
  }

  void Integers(at::IntArrayRef integers) {
    out_.bytes += '(';
    for (const int64_t integer : integers) Int(integer);
    out_.bytes += 't';
  }

  Pickled out_;
  uint32_t memo_size_ = 0;
  std::vector<std::string> path_;
  absl::flat_hash_map<std::string, uint32_t> globals_;
  absl::flat_hash_map<std::string, uint32_t> texts_;
  absl::flat_hash_map<const void*, uint32_t> memo_;
  absl::flat_hash_map<std::pair<c10::StorageImpl*, at::ScalarType>, size_t>
      storages_;
};

}  // namespace

absl::StatusOr<Pickled> Pickle(const Value& value) {
  return Pickler().Run(value);
}

}  // namespace mir::checkpoint
