#include "mir/checkpoint/storage_reader.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <sys/mman.h>

#include <cstdint>
#include <utility>

#include "mir/base/catch_torch.h"
#include "mir/base/status_macros.h"

namespace mir::checkpoint {
namespace {

// A storage of `bytes` that keeps `mapping` alive.
at::Storage MappedStorage(const std::shared_ptr<char>& mapping, uint64_t offset,
                          uint64_t size) {
  const auto release = [](void* context) {
    delete static_cast<std::shared_ptr<char>*>(context);
  };
  return at::Storage(
      at::Storage::use_byte_size_t(), size,
      at::DataPtr(mapping.get() + offset, new std::shared_ptr<char>(mapping),
                  release, at::kCPU),
      /*allocator=*/nullptr, /*resizable=*/false);
}

// Lets huge pages hold what lies in `size` fresh bytes: the system hands each
// out, and clears it, at once.
void AdviseHugePages(void* data, uint64_t size) {
  constexpr uintptr_t kHugePage = uintptr_t{1} << 21;
  const auto start = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (start + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t last = (start + size) / kHugePage * kHugePage;
  if (first < last) {
    madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  }
}

}  // namespace

absl::StatusOr<at::Storage> StorageReader::Load(
    uint64_t offset, uint64_t size, size_t itemsize,
    const std::function<absl::Status(void* out)>& read) {
  at::Storage storage;
  MIR_RETURN_IF_ERROR(CatchTorch([&]() -> absl::Status {
    if (options_.device.is_meta()) {
      storage = at::empty({static_cast<int64_t>(size)},
                          at::TensorOptions(at::kMeta).dtype(at::kByte))
                    .storage();
      return absl::OkStatus();
    }
    // Files of other writers need not be aligned; their numbers must be.
    if (options_.map && size > 0 && offset % itemsize == 0) {
      if (mapping_ == nullptr) {
        MIR_ASSIGN_OR_RETURN(mapping_, file_.Map());
      }
      storage = MappedStorage(mapping_, offset, size);
    } else {
      const at::Tensor bytes =
          at::empty({static_cast<int64_t>(size)}, at::kByte);
      void* const out = bytes.mutable_data_ptr();
      AdviseHugePages(out, size);
      MIR_RETURN_IF_ERROR(read != nullptr ? read(out)
                                          : file_.Read(offset, out, size));
      storage = bytes.storage();
    }
    if (!options_.device.is_cpu()) {
      at::Tensor bytes = at::empty({0}, at::kByte);
      bytes.set_(storage, 0, {static_cast<int64_t>(size)}, {1});
      storage = bytes.to(options_.device).storage();
    }
    return absl::OkStatus();
  }));
  return storage;
}

}  // namespace mir::checkpoint
