#ifndef MIR_CHECKPOINT_PYTHON_CLASSES_H_
#define MIR_CHECKPOINT_PYTHON_CLASSES_H_

#include <c10/core/ScalarType.h>

#include <optional>

#include "absl/strings/string_view.h"

namespace mir::checkpoint {

// The classes and functions that are known, by what they mean here.
enum class Known {
  kNothing,
  kOrderedDict,
  kCounter,
  kDefaultDict,
  kSet,
  kFrozenSet,
  kComplex,
  kByteArray,  // Or bytes.
  kType,       // Only ever named, such as the factory of a defaultdict.
  kEncode,
  kTensorV2,
  kTensorV3,
  kParameter,
  kTensorWithType,
  kTensorClass,
  kSize,
  kDevice,
  kDtype,
  kStorage,
  kNumpyScalar,
  kNumpyReconstruct,
  kNumpyFromBuffer,
  kNumpyArrayClass,
  kNumpyDtype,
};

struct KnownClass {
  Known known = Known::kNothing;
  at::ScalarType dtype = at::ScalarType::Undefined;  // kDtype, kStorage.
};

// The meaning of a class or function by its full name, "torch.FloatStorage";
// kNothing for all that torch.save does not emit.
KnownClass IdentifyClass(absl::string_view name);

// The class of the storages of a dtype, "FloatStorage"; empty for the dtypes
// whose storages torch saves as untyped.
absl::string_view StorageClassName(at::ScalarType dtype);

// The dtype that NumPy calls "f4", "i8" and so on; empty for one that tensors
// do not have.
std::optional<at::ScalarType> NumpyDtypeFromName(absl::string_view name);

}  // namespace mir::checkpoint

#endif  // MIR_CHECKPOINT_PYTHON_CLASSES_H_
