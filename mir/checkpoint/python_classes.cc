#include "mir/checkpoint/python_classes.h"

#include "absl/strings/strip.h"
#include "mir/checkpoint/value.h"

namespace mir::checkpoint {
namespace {

struct KnownEntry {
  absl::string_view name;
  Known known;
};
constexpr KnownEntry kKnown[] = {
    {"collections.OrderedDict", Known::kOrderedDict},
    {"collections.Counter", Known::kCounter},
    {"collections.defaultdict", Known::kDefaultDict},
    {"builtins.set", Known::kSet},
    {"builtins.frozenset", Known::kFrozenSet},
    {"builtins.complex", Known::kComplex},
    {"builtins.bytearray", Known::kByteArray},
    {"builtins.bool", Known::kType},
    {"builtins.bytes", Known::kByteArray},
    {"builtins.dict", Known::kType},
    {"builtins.float", Known::kType},
    {"builtins.int", Known::kType},
    {"builtins.list", Known::kType},
    {"builtins.str", Known::kType},
    {"builtins.tuple", Known::kType},
    {"_codecs.encode", Known::kEncode},
    // The first of these is from before torch 0.4, with four arguments.
    {"torch._utils._rebuild_tensor", Known::kTensorV2},
    {"torch._utils._rebuild_tensor_v2", Known::kTensorV2},
    {"torch._utils._rebuild_tensor_v3", Known::kTensorV3},
    {"torch._utils._rebuild_parameter", Known::kParameter},
    {"torch._utils._rebuild_parameter_with_state", Known::kParameter},
    {"torch._tensor._rebuild_from_type_v2", Known::kTensorWithType},
    {"torch.Tensor", Known::kTensorClass},
    {"torch.nn.parameter.Parameter", Known::kTensorClass},
    {"torch.nn.parameter.Buffer", Known::kTensorClass},
    {"torch.Size", Known::kSize},
    {"torch.device", Known::kDevice},
    {"numpy.core.multiarray.scalar", Known::kNumpyScalar},
    {"numpy._core.multiarray.scalar", Known::kNumpyScalar},
    {"numpy.core.multiarray._reconstruct", Known::kNumpyReconstruct},
    {"numpy._core.multiarray._reconstruct", Known::kNumpyReconstruct},
    {"numpy.core.numeric._frombuffer", Known::kNumpyFromBuffer},
    {"numpy._core.numeric._frombuffer", Known::kNumpyFromBuffer},
    {"numpy.ndarray", Known::kNumpyArrayClass},
    {"numpy.dtype", Known::kNumpyDtype},
};

struct StorageClass {
  absl::string_view name;
  at::ScalarType dtype;
};
constexpr StorageClass kStorageClasses[] = {
    {"ByteStorage", at::ScalarType::Byte},
    {"CharStorage", at::ScalarType::Char},
    {"ShortStorage", at::ScalarType::Short},
    {"IntStorage", at::ScalarType::Int},
    {"LongStorage", at::ScalarType::Long},
    {"HalfStorage", at::ScalarType::Half},
    {"FloatStorage", at::ScalarType::Float},
    {"DoubleStorage", at::ScalarType::Double},
    {"BoolStorage", at::ScalarType::Bool},
    {"BFloat16Storage", at::ScalarType::BFloat16},
    {"ComplexFloatStorage", at::ScalarType::ComplexFloat},
    {"ComplexDoubleStorage", at::ScalarType::ComplexDouble},
    {"UntypedStorage", at::ScalarType::Byte},
    {"_UntypedStorage", at::ScalarType::Byte},
};

struct NumpyDtype {
  absl::string_view name;
  at::ScalarType dtype;
};
constexpr NumpyDtype kNumpyDtypes[] = {
    {"b1", at::ScalarType::Bool},
    {"i1", at::ScalarType::Char},
    {"i2", at::ScalarType::Short},
    {"i4", at::ScalarType::Int},
    {"i8", at::ScalarType::Long},
    {"u1", at::ScalarType::Byte},
    {"u2", at::ScalarType::UInt16},
    {"u4", at::ScalarType::UInt32},
    {"u8", at::ScalarType::UInt64},
    {"f2", at::ScalarType::Half},
    {"f4", at::ScalarType::Float},
    {"f8", at::ScalarType::Double},
    {"c8", at::ScalarType::ComplexFloat},
    {"c16", at::ScalarType::ComplexDouble},
};

}  // namespace

KnownClass IdentifyClass(absl::string_view name) {
  for (const KnownEntry& entry : kKnown) {
    if (entry.name == name) return {entry.known, at::ScalarType::Undefined};
  }
  if (!absl::ConsumePrefix(&name, "torch.")) return {};
  if (const std::optional<at::ScalarType> dtype = DtypeFromName(name)) {
    return {Known::kDtype, *dtype};
  }
  if (!absl::ConsumePrefix(&name, "cuda.")) {
    absl::ConsumePrefix(&name, "storage.");
  }
  for (const StorageClass& entry : kStorageClasses) {
    if (entry.name == name) return {Known::kStorage, entry.dtype};
  }
  return {};
}

absl::string_view StorageClassName(at::ScalarType dtype) {
  for (const StorageClass& entry : kStorageClasses) {
    if (entry.dtype == dtype) return entry.name;  // The first: the typed one.
  }
  return "";
}

std::optional<at::ScalarType> NumpyDtypeFromName(absl::string_view name) {
  for (const NumpyDtype& entry : kNumpyDtypes) {
    if (entry.name == name) return entry.dtype;
  }
  return std::nullopt;
}

}  // namespace mir::checkpoint
