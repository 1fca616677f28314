// libFuzzer's entry to all readers of mir/checkpoint: run.sh builds and runs
// it.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "mir/checkpoint/archive.h"
#include "mir/checkpoint/pickle.h"
#include "mir/checkpoint/unpickle.h"
#include "mir/checkpoint/value.h"

namespace mir::checkpoint {
namespace {

void Expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "FAILED: %s\n", what);
  std::abort();
}

// Each tensor lies within its storage, whose ends can be read.
void Touch(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return;
  const int64_t itemsize = static_cast<int64_t>(tensor.element_size());
  int64_t last = tensor.storage_offset();
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    Expect(tensor.stride(i) >= 0, "a negative stride");
    last += (tensor.size(i) - 1) * tensor.stride(i);
  }
  Expect(
      (last + 1) * itemsize <= static_cast<int64_t>(tensor.storage().nbytes()),
      "a tensor beyond its storage");
  const auto* const bytes =
      static_cast<const volatile char*>(tensor.storage().data());
  static_cast<void>(bytes[tensor.storage_offset() * itemsize]);
  static_cast<void>(bytes[(last + 1) * itemsize - 1]);
}

// Each container once, however many share it.
void Touch(const Value& value, std::set<const void*>* seen) {
  Expect(!value.Describe().empty(), "no description");
  if (value.tensor() != nullptr) Touch(*value.tensor());
  if (value.identity() != nullptr && !seen->insert(value.identity()).second) {
    return;
  }
  if (value.items() != nullptr) {
    for (const Value& item : *value.items()) Touch(item, seen);
  }
  if (value.dict() != nullptr) {
    for (const auto& [key, item] : value.dict()->entries()) {
      Expect(value.dict()->FindKey(key) != nullptr, "a key is not found");
      Touch(item, seen);
    }
    Touch(value.dict()->attributes(), seen);
  }
}

absl::StatusOr<at::Storage> SmallStorage(const StorageRecord& record) {
  if (record.nbytes > 1 << 20) return absl::OutOfRangeError("too large");
  return at::empty({record.nbytes}, at::kByte).storage();
}

// What can be read can be written, if it can be written at all, and read again.
void Check(const absl::StatusOr<Value>& value) {
  if (!value.ok()) {
    Expect(!value.status().message().empty(), "an error without words");
    return;
  }
  std::set<const void*> seen;
  Touch(*value, &seen);
  const absl::StatusOr<Pickled> pickled = Pickle(*value);
  if (!pickled.ok()) return;
  const absl::StatusOr<ParsedPickle> again = ParsePickle(pickled->bytes);
  Expect(again.ok(), "what was written cannot be read");
}

void FuzzPickle(absl::string_view bytes) {
  for (const bool keep : {false, true}) {
    UnpickleOptions options;
    options.keep_unknown_classes = keep;
    const absl::StatusOr<ParsedPickle> parsed = ParsePickle(bytes, options);
    if (parsed.ok()) Check(parsed->Build(SmallStorage));
  }
}

void FuzzFile(absl::string_view bytes) {
  const int descriptor = memfd_create("fuzz", MFD_CLOEXEC);
  Expect(descriptor >= 0 && write(descriptor, bytes.data(), bytes.size()) ==
                                static_cast<ssize_t>(bytes.size()),
         "no file in memory");
  for (const bool map : {false, true}) {
    ReadOptions options;
    options.check_crc = false;
    options.map = map;
    options.keep_unknown_classes = map;
    Check(ReadCheckpoint(absl::StrCat("/proc/self/fd/", descriptor), options));
  }
  close(descriptor);
}

}  // namespace
}  // namespace mir::checkpoint

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  mir::checkpoint::FuzzPickle(bytes);
  mir::checkpoint::FuzzFile(bytes);
  return 0;
}
