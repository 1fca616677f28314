#ifndef MIR_DISTRIBUTED_SAMPLER_H_
#define MIR_DISTRIBUTED_SAMPLER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

namespace mir::distributed {

// One case to train on. A source that draws partners or augmentations from
// (epoch, index) gives the same case anew in each pass.
struct Draw {
  int64_t epoch = 0;  // Which pass over the cases this belongs to.
  int64_t index = 0;  // In [0, case_count).
};
inline bool operator==(const Draw& a, const Draw& b) {
  return a.epoch == b.epoch && a.index == b.index;
}

struct SamplerOptions {
  int64_t case_count = 0;
  int64_t batch_size = 1;  // Per rank.
  int rank = 0;
  int world_size = 1;
  uint64_t seed = 0;
  bool shuffle = true;
};

// Which cases each rank trains on in each step: a pure function of the options,
// the epoch and the step, so there is no state to set, forget or save.
//
// All passes over the cases, each in an order of its own drawn from (seed,
// pass), make one endless sequence. Every step takes the next world_size *
// batch_size of it, rank 0 the first batch_size of these, and so on: the order
// depends on that product alone, not on how it is split over ranks. An epoch is
// case_count / (world_size * batch_size) steps, rounded down, at least one, on
// every rank. What remains of the cases comes first in the next epoch; so no
// case is dropped or repeated, and at any time their counts differ by at most
// one.
//
// In a single process (rank 0 of 1) it is the sampler of plain training.
// Thread-safe.
class DistributedSampler {
 public:
  // INVALID_ARGUMENT names an option out of range.
  static absl::StatusOr<DistributedSampler> Create(
      const SamplerOptions& options);

  int64_t StepsPerEpoch() const;

  // This rank's cases in a step of an epoch, both from 0. Steps may go beyond
  // the epoch's end: (epoch, StepsPerEpoch()) is (epoch + 1, 0).
  std::vector<Draw> Batch(int64_t epoch, int64_t step) const;

 private:
  struct Orders;  // The latest passes' orders, kept.

  explicit DistributedSampler(const SamplerOptions& options);

  SamplerOptions options_;
  std::shared_ptr<Orders> orders_;
};

// The cases that `rank` evaluates: rank, rank + world_size, ... Every case is
// in exactly one share, shares differ by at most one case, and are empty where
// there are more ranks than cases; so no collective may stand within the loop.
std::vector<int64_t> ShareOf(int64_t case_count, int rank, int world_size);

}  // namespace mir::distributed

#endif  // MIR_DISTRIBUTED_SAMPLER_H_
