#include "mir/checkpoint/safetensors.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "mir/base/catch_torch.h"
#include "mir/base/status_macros.h"
#include "mir/checkpoint/atomic_file.h"
#include "mir/checkpoint/input_file.h"
#include "mir/checkpoint/storage_reader.h"

namespace mir::checkpoint {
namespace {

constexpr absl::string_view kMetadata = "__metadata__";
constexpr uint64_t kLengthSize = 8;
constexpr uint64_t kMaxHeader = 100'000'000;  // Hugging Face's limit.
constexpr size_t kMaxDimensions = 64;
constexpr size_t kAlignment = 8;  // Of the first tensor.

struct DtypeNames {
  const char* name;
  at::ScalarType dtype;
};
constexpr DtypeNames kDtypes[] = {
    {"BOOL", at::kBool},
    {"U8", at::kByte},
    {"I8", at::kChar},
    {"U16", at::kUInt16},
    {"I16", at::kShort},
    {"U32", at::kUInt32},
    {"I32", at::kInt},
    {"U64", at::kUInt64},
    {"I64", at::kLong},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E5M2", at::kFloat8_e5m2},
    {"F8_E8M0", at::kFloat8_e8m0fnu},
    {"F16", at::kHalf},
    {"BF16", at::kBFloat16},
    {"F32", at::kFloat},
    {"F64", at::kDouble},
    {"C64", at::kComplexFloat},
};

std::string Quoted(absl::string_view name) {
  return absl::StrCat("'", absl::Utf8SafeCHexEscape(name), "'");
}

absl::Status InFile(const std::string& path, const absl::Status& status) {
  if (status.ok() || absl::StrContains(status.message(), path)) return status;
  return absl::Status(status.code(),
                      absl::StrCat(path, ": ", status.message()));
}

// A tensor as the header describes it.
struct Described {
  std::optional<std::string> dtype;
  std::optional<std::vector<uint64_t>> shape;
  std::optional<std::vector<uint64_t>> offsets;
};

struct Entry {
  std::string name;
  at::ScalarType dtype = at::kByte;
  std::vector<int64_t> sizes;
  uint64_t begin = 0;  // Within the data.
  uint64_t end = 0;
};

// Fills in `entry` of what is described, or tells what is wrong with that.
std::optional<std::string> Check(const Described& described, uint64_t data_size,
                                 Entry* entry) {
  if (!described.dtype || !described.shape || !described.offsets) {
    return "lacks its dtype, shape or data_offsets";
  }
  const auto* const found =
      std::find_if(std::begin(kDtypes), std::end(kDtypes),
                   [&](const auto& d) { return *described.dtype == d.name; });
  if (found == std::end(kDtypes)) {
    return absl::StrCat("has the dtype ", Quoted(*described.dtype),
                        ", which is not supported");
  }
  entry->dtype = found->dtype;
  if (described.offsets->size() != 2) {
    return "has data_offsets that are not two numbers";
  }
  entry->begin = (*described.offsets)[0];
  entry->end = (*described.offsets)[1];
  if (entry->begin > entry->end || entry->end > data_size) {
    return absl::StrCat("lies at bytes ", entry->begin, " to ", entry->end,
                        " of ", data_size);
  }
  // An empty tensor may have other sizes beyond all bounds.
  uint64_t nbytes = c10::elementSize(entry->dtype);
  uint64_t extent = nbytes;
  bool fits = true;
  for (const uint64_t size : *described.shape) {
    fits =
        !__builtin_mul_overflow(extent, std::max<uint64_t>(size, 1), &extent) &&
        extent <= uint64_t{1} << 62;
    if (!fits) break;
    nbytes *= size;
    entry->sizes.push_back(static_cast<int64_t>(size));
  }
  if (!fits || nbytes != entry->end - entry->begin) {
    return absl::StrCat("has ", entry->end - entry->begin,
                        " bytes, which is not what ", *described.dtype, " [",
                        absl::StrJoin(*described.shape, ", "), "] needs");
  }
  return std::nullopt;
}

// Reads the header while it is parsed, and stops at the first thing that is not
// as it must be: a document of another shape is never held in memory.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(uint64_t data_size) : data_size_(data_size) {}

  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
  std::string error;  // Empty while all is well.

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_float(number_float_t, const string_t&) override {
    return Unexpected("a fraction");
  }
  bool binary(binary_t&) override { return Unexpected("bytes"); }
  bool number_integer(number_integer_t) override {
    return Unexpected("a negative number");
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (numbers_ == nullptr) return Unexpected("a number");
    if (numbers_->size() == kMaxDimensions) {
      return Fail(absl::StrCat("more than ", kMaxDimensions, " numbers"));
    }
    numbers_->push_back(value);
    return true;
  }
  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      if (!metadata.emplace(key_, value).second) return Fail("stands twice");
      return true;
    }
    if (place_ != Place::kTensor || key_ != "dtype" || numbers_ != nullptr) {
      return Unexpected("a string");
    }
    if (described_.dtype.has_value()) return Fail("stands twice");
    described_.dtype = value;
    return true;
  }
  bool start_object(size_t) override {
    if (place_ == Place::kOutside) {
      place_ = Place::kTop;
    } else if (place_ != Place::kTop) {
      return Unexpected("an object");
    } else if (key_ == kMetadata) {
      if (seen_metadata_) return Fail("stands twice");
      seen_metadata_ = true;
      place_ = Place::kMetadata;
    } else {
      if (!names_.insert(key_).second) {
        return Fail(absl::StrCat(Quoted(key_), " stands twice"));
      }
      entries.emplace_back();
      entries.back().name = key_;
      described_ = {};
      place_ = Place::kTensor;
    }
    return true;
  }
  bool end_object() override {
    if (place_ == Place::kTensor) {
      Entry& entry = entries.back();
      if (const auto wrong = Check(described_, data_size_, &entry)) {
        error = absl::StrCat("says that ", Quoted(entry.name), " ", *wrong);
        return false;
      }
    }
    place_ = place_ == Place::kTop ? Place::kOutside : Place::kTop;
    return true;
  }
  bool start_array(size_t) override {
    std::optional<std::vector<uint64_t>>* numbers = nullptr;
    if (place_ == Place::kTensor && numbers_ == nullptr) {
      if (key_ == "shape") numbers = &described_.shape;
      if (key_ == "data_offsets") numbers = &described_.offsets;
    }
    if (numbers == nullptr) return Unexpected("a list");
    if (numbers->has_value()) return Fail("stands twice");
    numbers_ = &numbers->emplace();
    return true;
  }
  bool end_array() override {
    numbers_ = nullptr;
    return true;
  }
  bool key(string_t& value) override {
    key_ = value;
    if (place_ == Place::kTensor && value != "dtype" && value != "shape" &&
        value != "data_offsets") {
      return Fail("is unknown there");
    }
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    error = absl::StrCat("is no JSON at its byte ", position);
    return false;
  }

 private:
  enum class Place { kOutside, kTop, kMetadata, kTensor };

  bool Fail(absl::string_view what) {
    error = place_ == Place::kTensor
                ? absl::StrCat("of ", Quoted(entries.back().name), ": ",
                               Quoted(key_), " ", what)
                : std::string(what);
    return false;
  }
  bool Unexpected(absl::string_view what) {
    return Fail(absl::StrCat("has ", what, " where there must be none"));
  }

  const uint64_t data_size_;
  Place place_ = Place::kOutside;
  std::string key_;
  Described described_;  // The tensor that is being read.
  std::vector<uint64_t>* numbers_ = nullptr;
  std::set<std::string> names_;
  bool seen_metadata_ = false;
};

// The tensors must fill the file, each beginning where another ends.
absl::Status CheckPlaces(const std::vector<Entry>& entries,
                         uint64_t data_size) {
  std::vector<const Entry*> in_order;
  for (const Entry& entry : entries) in_order.push_back(&entry);
  std::sort(in_order.begin(), in_order.end(),
            [](const Entry* a, const Entry* b) {
              return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
            });
  uint64_t end = 0;
  for (const Entry* entry : in_order) {
    if (entry->begin != end) {
      return absl::InvalidArgumentError(absl::StrCat(
          "its tensor ", Quoted(entry->name), " begins at byte ", entry->begin,
          " of the data, the one before it ends at ", end));
    }
    end = entry->end;
  }
  if (end != data_size) {
    return absl::DataLossError(absl::StrCat("is damaged: its tensors take ",
                                            end, " bytes, it has ", data_size));
  }
  return absl::OkStatus();
}

absl::Status Truncated(const char* what) {
  return absl::DataLossError(
      absl::StrCat("is damaged or truncated, or no safetensors file: ", what));
}

absl::StatusOr<Safetensors> Read(const InputFile& file,
                                 const ReadOptions& options) {
  if (file.size() < kLengthSize) return Truncated("it ends within 8 bytes");
  uint64_t length = 0;
  MIR_RETURN_IF_ERROR(file.Read(0, &length, kLengthSize));
  if (length > kMaxHeader) {
    return absl::InvalidArgumentError(
        absl::StrCat("claims a header of ", length,
                     " bytes; no safetensors file has more "
                     "than ",
                     kMaxHeader));
  }
  if (length > file.size() - kLengthSize) {
    return Truncated("its header is longer than the file");
  }
  std::string text(length, '\0');
  MIR_RETURN_IF_ERROR(file.Read(kLengthSize, text.data(), length));
  const uint64_t data_offset = kLengthSize + length;
  const uint64_t data_size = file.size() - data_offset;
  HeaderReader header(data_size);
  if (!absl::StartsWith(text, "{")) {
    header.error = "does not begin with {";
  } else {
    nlohmann::json::sax_parse(text, &header);
  }
  if (!header.error.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("its header ", header.error));
  }
  MIR_RETURN_IF_ERROR(CheckPlaces(header.entries, data_size));

  Safetensors content;
  content.metadata = std::move(header.metadata);
  StorageReader storages(file, options);
  for (const Entry& entry : header.entries) {
    MIR_ASSIGN_OR_RETURN(
        const at::Storage storage,
        storages.Load(data_offset + entry.begin, entry.end - entry.begin,
                      c10::elementSize(entry.dtype)));
    at::Tensor tensor =
        at::empty({0}, at::TensorOptions(storage.device()).dtype(entry.dtype));
    std::vector<int64_t> strides(entry.sizes.size(), 1);
    for (size_t i = strides.size(); i-- > 1;) {
      strides[i - 1] = strides[i] * std::max<int64_t>(entry.sizes[i], 1);
    }
    tensor.set_(storage, 0, entry.sizes, strides);
    content.tensors.emplace_back(entry.name, std::move(tensor));
  }
  return content;
}

// The name of a tensor's dtype, or why it cannot be saved.
absl::StatusOr<std::string> SavedDtype(const at::Tensor& tensor) {
  if (!tensor.defined()) return absl::InvalidArgumentError("is undefined");
  if (tensor.layout() != at::kStrided || tensor.is_meta() ||
      tensor.is_quantized()) {
    return absl::InvalidArgumentError(
        "is sparse, quantized or meta; the format has dense tensors alone");
  }
  for (const auto& [name, dtype] : kDtypes) {
    if (dtype == tensor.scalar_type()) return name;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("has the dtype ", c10::toString(tensor.scalar_type()),
                   ", which the format lacks"));
}

absl::StatusOr<std::string> HeaderText(const Safetensors& content,
                                       const std::vector<uint64_t>& begins,
                                       const std::vector<std::string>& dtypes) {
  // Its keys keep their order.
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!content.metadata.empty()) {
    header[std::string(kMetadata)] = content.metadata;
  }
  // ordered_json looks a key up by going through all: too slow for thousands.
  auto& object = header.get_ref<nlohmann::ordered_json::object_t&>();
  for (size_t i = 0; i < content.tensors.size(); ++i) {
    const auto& [name, tensor] = content.tensors[i];
    object.push_back(
        {name,
         {{"dtype", dtypes[i]},
          {"shape", std::vector<int64_t>(tensor.sizes().vec())},
          {"data_offsets", {begins[i], begins[i] + tensor.nbytes()}}}});
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    return absl::InvalidArgumentError("a name or the metadata is not UTF-8");
  }
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  if (text.size() > kMaxHeader) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its names take ", text.size(), " bytes, the format has ", kMaxHeader));
  }
  return text;
}

absl::Status Write(const std::string& path, const Safetensors& content) {
  std::vector<std::string> dtypes;
  std::set<absl::string_view> names;
  std::vector<size_t> in_order;
  for (const auto& [name, tensor] : content.tensors) {
    const auto refuse = [&name = name](absl::string_view what) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Quoted(name), " ", what));
    };
    if (!names.insert(name).second) return refuse("stands twice");
    if (name == kMetadata) return refuse("has a name that the format reserves");
    const absl::StatusOr<std::string> dtype = SavedDtype(tensor);
    if (!dtype.ok()) return refuse(dtype.status().message());
    dtypes.push_back(*dtype);
    in_order.push_back(in_order.size());
  }
  // The larger elements first, so that all are aligned.
  std::stable_sort(in_order.begin(), in_order.end(), [&](size_t a, size_t b) {
    return content.tensors[a].second.element_size() >
           content.tensors[b].second.element_size();
  });
  std::vector<uint64_t> begins(in_order.size());
  uint64_t end = 0;
  for (const size_t i : in_order) {
    begins[i] = end;
    end += content.tensors[i].second.nbytes();
  }
  MIR_ASSIGN_OR_RETURN(const std::string header,
                       HeaderText(content, begins, dtypes));
  MIR_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file,
                       AtomicFile::Create(path));
  const uint64_t length = header.size();
  MIR_RETURN_IF_ERROR(file->Write(&length, sizeof(length)));
  MIR_RETURN_IF_ERROR(file->Write(header.data(), header.size()));
  for (const size_t i : in_order) {
    const at::Tensor bytes = content.tensors[i]
                                 .second.detach()
                                 .cpu()
                                 .resolve_conj()
                                 .resolve_neg()
                                 .contiguous();
    MIR_RETURN_IF_ERROR(file->Write(bytes.const_data_ptr(), bytes.nbytes()));
  }
  return file->Commit();
}

}  // namespace

absl::StatusOr<Safetensors> ReadSafetensors(const std::string& path,
                                            const ReadOptions& options) {
  Safetensors content;
  MIR_RETURN_IF_ERROR(InFile(
      path, CatchTorch([&] {
        MIR_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
        MIR_ASSIGN_OR_RETURN(content, Read(file, options));
        return absl::OkStatus();
      })));
  return content;
}

absl::Status WriteSafetensors(const std::string& path,
                              const Safetensors& content) {
  return InFile(path, CatchTorch([&] { return Write(path, content); }));
}

bool BeginsAsSafetensors(absl::string_view start) {
  if (start.size() < kSafetensorsStart || start[kLengthSize] != '{') {
    return false;
  }
  uint64_t length = 0;
  std::memcpy(&length, start.data(), kLengthSize);
  return length <= kMaxHeader;
}

}  // namespace mir::checkpoint
