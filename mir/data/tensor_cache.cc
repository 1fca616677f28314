#include "mir/data/tensor_cache.h"

namespace mir::data {

absl::optional<at::Tensor> TensorCache::Find(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return absl::nullopt;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->second;
}

void TensorCache::Insert(const std::string& name, const at::Tensor& tensor) {
  const int64_t bytes = static_cast<int64_t>(tensor.nbytes());
  absl::MutexLock lock(&mutex_);
  if (bytes > max_bytes_ || by_name_.contains(name)) return;
  while (bytes_ + bytes > max_bytes_) {
    bytes_ -= static_cast<int64_t>(entries_.back().second.nbytes());
    by_name_.erase(entries_.back().first);
    entries_.pop_back();
  }
  entries_.emplace_front(name, tensor);
  by_name_[name] = entries_.begin();
  bytes_ += bytes;
}

int64_t TensorCache::bytes() const {
  absl::MutexLock lock(&mutex_);
  return bytes_;
}

}  // namespace mir::data
