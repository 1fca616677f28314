#include "mir/data/loader.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "mir/base/catch_torch.h"
#include "mir/base/status_macros.h"

// Of the OpenMP runtime that LibTorch ships.
extern "C" void omp_set_num_threads(int);

namespace mir::data {
namespace {

// Lets the calling thread alone compute with one thread. at::set_num_threads
// would also set what threads started later begin with.
void UseOneThread() {
  // LibTorch sets a new thread's number on first use; once for its own code and
  // once for what its headers compile here.
  at::get_num_threads();
  at::internal::lazy_init_num_threads();
  omp_set_num_threads(1);
}

}  // namespace

BatchPlan PlanBatches(std::vector<Position> positions, int64_t batch_size) {
  return [positions = std::move(positions), batch_size](int64_t number) {
    const int64_t count = static_cast<int64_t>(positions.size());
    const int64_t begin = std::min(count, number * batch_size);
    const int64_t end = std::min(count, begin + batch_size);
    return std::vector<Position>(positions.begin() + begin,
                                 positions.begin() + end);
  };
}

Loader::Loader(std::shared_ptr<const PairSource> source, BatchPlan plan,
               const LoaderOptions& options)
    : source_(std::move(source)), plan_(std::move(plan)), options_(options) {
  for (int thread = 0; thread < options_.threads; ++thread) {
    threads_.emplace_back([this] { Work(); });
  }
}

Loader::~Loader() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::StatusOr<Batch> Loader::Make(
    const std::vector<Position>& positions) const {
  const c10::NoGradGuard no_grad;
  absl::StatusOr<Batch> batch = absl::UnknownError("not made");
  const absl::Status status = CatchTorch([&]() -> absl::Status {
    std::vector<Pair> pairs;
    for (const Position& position : positions) {
      MIR_ASSIGN_OR_RETURN(Pair pair,
                           source_->Get(position.epoch, position.index));
      pairs.push_back(std::move(pair));
    }
    batch = Collate(pairs);
    return batch.status();
  });
  if (!status.ok()) return status;
  return batch;
}

bool Loader::CanStart() const {
  return stopping_ || ended_ ||
         started_ < handed_out_ + std::max(options_.prefetch, 1);
}

void Loader::Work() {
  UseOneThread();
  while (true) {
    int64_t number;
    std::vector<Position> positions;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &Loader::CanStart));
      if (stopping_ || ended_) return;
      number = started_;
      positions = plan_(number);
      if (positions.empty()) {
        ended_ = true;
        return;
      }
      ++started_;
    }
    absl::StatusOr<Batch> batch = Make(positions);
    absl::MutexLock lock(&mutex_);
    if (!batch.ok()) ended_ = true;
    ready_.emplace(number, std::move(batch));
  }
}

bool Loader::CanFinish() const {
  return ready_.count(handed_out_) > 0 || (ended_ && started_ == handed_out_);
}

absl::StatusOr<absl::optional<Batch>> Loader::Next() {
  absl::MutexLock lock(&mutex_);
  MIR_RETURN_IF_ERROR(error_);
  if (options_.threads <= 0) {
    const std::vector<Position> positions =
        ended_ ? std::vector<Position>() : plan_(handed_out_);
    if (positions.empty()) {
      ended_ = true;
      return absl::nullopt;
    }
    ready_.emplace(handed_out_, Make(positions));
  }
  mutex_.Await(absl::Condition(this, &Loader::CanFinish));
  const auto found = ready_.find(handed_out_);
  if (found == ready_.end()) return absl::nullopt;
  absl::StatusOr<Batch> batch = std::move(found->second);
  ready_.erase(found);
  error_ = batch.status();
  MIR_RETURN_IF_ERROR(error_);
  ++handed_out_;
  return absl::optional<Batch>(*std::move(batch));
}

}  // namespace mir::data
