#ifndef MIR_DATA_TENSOR_CACHE_H_
#define MIR_DATA_TENSOR_CACHE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <list>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"

namespace mir::data {

// Tensors by name, as many as fit into a number of bytes: the longest unused
// go first. What it hands out is shared and must not be changed. Thread-safe.
class TensorCache {
 public:
  explicit TensorCache(int64_t max_bytes) : max_bytes_(max_bytes) {}

  absl::optional<at::Tensor> Find(const std::string& name);

  // Keeps `tensor`, unless it alone is too large or the name is known.
  void Insert(const std::string& name, const at::Tensor& tensor);

  int64_t bytes() const;

 private:
  // Those used last come first.
  using Entries = std::list<std::pair<std::string, at::Tensor>>;

  const int64_t max_bytes_;
  mutable absl::Mutex mutex_;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Entries::iterator> by_name_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace mir::data

#endif  // MIR_DATA_TENSOR_CACHE_H_
