#include "mir/distributed/sampler.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace mir::distributed {
namespace {

// The generator of Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
// Generators" (2014): std::shuffle's order depends on the standard library.
uint64_t Scramble(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

class Generator {
 public:
  Generator(uint64_t seed, int64_t pass)
      : state_(Scramble(seed) ^
               Scramble(static_cast<uint64_t>(pass) + 0x9e3779b97f4a7c15u)) {}

  // In [0, bound).
  int64_t Below(int64_t bound) {
    state_ += 0x9e3779b97f4a7c15u;
    return static_cast<int64_t>(
        (static_cast<unsigned __int128>(Scramble(state_)) *
         static_cast<uint64_t>(bound)) >>
        64);
  }

 private:
  uint64_t state_;
};

std::vector<int64_t> OrderOf(const SamplerOptions& options, int64_t pass) {
  std::vector<int64_t> order(options.case_count);
  std::iota(order.begin(), order.end(), 0);
  if (options.shuffle) {
    Generator generator(options.seed, pass);
    for (int64_t i = options.case_count - 1; i > 0; --i) {
      std::swap(order[i], order[generator.Below(i + 1)]);
    }
  }
  return order;
}

}  // namespace

// A batch rarely spans more than two passes, and steps follow each other.
struct DistributedSampler::Orders {
  using Order = std::shared_ptr<const std::vector<int64_t>>;

  Order Get(const SamplerOptions& options, int64_t pass) {
    const std::lock_guard<std::mutex> lock(mutex);
    std::pair<int64_t, Order>& slot = slots[pass % slots.size()];
    if (slot.second == nullptr || slot.first != pass) {
      slot = {pass, std::make_shared<const std::vector<int64_t>>(
                        OrderOf(options, pass))};
    }
    return slot.second;
  }

  std::mutex mutex;
  std::array<std::pair<int64_t, Order>, 2> slots;
};

absl::StatusOr<DistributedSampler> DistributedSampler::Create(
    const SamplerOptions& options) {
  if (options.case_count < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sampling needs at least 1 case, got ", options.case_count));
  }
  if (options.batch_size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the batch size must be at least 1 per process, got ",
                     options.batch_size));
  }
  if (options.rank < 0 || options.rank >= options.world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", options.rank, " is outside a world of ",
                     options.world_size, " ranks"));
  }
  return DistributedSampler(options);
}

DistributedSampler::DistributedSampler(const SamplerOptions& options)
    : options_(options), orders_(std::make_shared<Orders>()) {}

int64_t DistributedSampler::StepsPerEpoch() const {
  return std::max<int64_t>(
      options_.case_count / (options_.world_size * options_.batch_size), 1);
}

std::vector<Draw> DistributedSampler::Batch(int64_t epoch, int64_t step) const {
  const int64_t global_step = epoch * StepsPerEpoch() + step;
  const int64_t first =
      (global_step * options_.world_size + options_.rank) * options_.batch_size;
  std::vector<Draw> batch(options_.batch_size);
  for (int64_t i = 0; i < options_.batch_size; ++i) {
    const int64_t pass = (first + i) / options_.case_count;
    const int64_t place = (first + i) % options_.case_count;
    batch[i] = {pass, (*orders_->Get(options_, pass))[place]};
  }
  return batch;
}

std::vector<int64_t> ShareOf(int64_t case_count, int rank, int world_size) {
  std::vector<int64_t> share;
  for (int64_t i = rank; i < case_count; i += world_size) share.push_back(i);
  return share;
}

}  // namespace mir::distributed
