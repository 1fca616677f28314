#ifndef MIR_DATA_LOADER_H_
#define MIR_DATA_LOADER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"
#include "mir/data/pair.h"
#include "mir/data/source.h"

namespace mir::data {

// A pair's place in a training run.
struct Position {
  int64_t epoch = 0;
  int64_t index = 0;
};

// The pairs of batch `number` (0, 1, 2, ...); empty ends the loader. Called
// once per batch in rising order, by one thread at a time.
using BatchPlan = std::function<std::vector<Position>(int64_t number)>;

// `positions` cut into batches of `batch_size`; the last may be smaller.
BatchPlan PlanBatches(std::vector<Position> positions, int64_t batch_size);

struct LoaderOptions {
  // Threads that make batches ahead of their use; 0 makes each in Next().
  int threads = 2;
  // Batches that are made and wait, or are being made, at most.
  int prefetch = 4;
};

// Makes the batches of a plan ahead of their use and hands them out in order.
// What it hands out depends on the source and the plan alone, never on the
// number of threads.
//
// An error, or an exception, in a thread ends the loader: the batches before
// it are still handed out, then Next() returns that status for ever. The
// threads compute with one thread each (other threads' settings stay as they
// are), without autograd. The destructor stops them at once, after the pairs
// that are being made.
class Loader {
 public:
  Loader(std::shared_ptr<const PairSource> source, BatchPlan plan,
         const LoaderOptions& options = {});
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next batch, waiting for it, or nullopt after the last. One caller at a
  // time.
  absl::StatusOr<absl::optional<Batch>> Next();

 private:
  absl::StatusOr<Batch> Make(const std::vector<Position>& positions) const;
  void Work();
  bool CanStart() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool CanFinish() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<const PairSource> source_;
  const BatchPlan plan_;
  const LoaderOptions options_;

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // No further batch is started.
  int64_t started_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t handed_out_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, absl::StatusOr<Batch>> ready_ ABSL_GUARDED_BY(mutex_);
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace mir::data

#endif  // MIR_DATA_LOADER_H_
