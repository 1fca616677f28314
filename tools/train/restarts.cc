#include "tools/train/restarts.h"

#include <sys/wait.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "mir/launch/exit_codes.h"

namespace mir::tools {
namespace {

using launch::Outcome;
using launch::StopReason;
using launch::WorkerReport;

constexpr std::pair<absl::string_view, FailureKind> kKinds[] = {
    {"signal", FailureKind::kSignal},   {"peer", FailureKind::kPeer},
    {"preempt", FailureKind::kPreempt}, {"hang", FailureKind::kHang},
    {"error", FailureKind::kError},
};

}  // namespace

absl::StatusOr<std::set<FailureKind>> ParseFailureKinds(
    absl::string_view text) {
  std::set<FailureKind> kinds;
  for (const absl::string_view name : absl::StrSplit(text, ',')) {
    const auto* const found =
        std::find_if(std::begin(kKinds), std::end(kKinds),
                     [&](const auto& kind) { return kind.first == name; });
    if (found == std::end(kKinds)) {
      return absl::InvalidArgumentError(
          "wants some of signal, peer, preempt, hang, error, such as "
          "signal,hang");
    }
    kinds.insert(found->second);
  }
  return kinds;
}

FailureKind FailureKindOf(const Outcome& outcome, bool ours) {
  const bool all_ended =
      std::all_of(outcome.workers.begin(), outcome.workers.end(),
                  [](const WorkerReport& worker) { return worker.ended; });
  if (!all_ended || outcome.exit_code == launch::kOk ||
      outcome.reason == StopReason::kSignal ||
      outcome.reason == StopReason::kElsewhere ||
      outcome.reason == StopReason::kTimeout ||
      outcome.reason == StopReason::kInitTimeout) {
    return FailureKind::kNone;
  }
  if (outcome.reason == StopReason::kHang) return FailureKind::kHang;
  for (const WorkerReport& worker : outcome.workers) {
    if (worker.rank == outcome.root_cause && WIFSIGNALED(worker.wait_status)) {
      return FailureKind::kSignal;
    }
  }
  switch (outcome.exit_code) {
    case launch::kPeer:
      return FailureKind::kPeer;
    case launch::kStopped:
      return FailureKind::kPreempt;
    case launch::kArguments:
    case launch::kEnvironment:
      return ours ? FailureKind::kNone : FailureKind::kError;
    default:
      return FailureKind::kError;
  }
}

Restarts::Decision Restarts::After(const Outcome& outcome, FailureKind kind) {
  bool newer = false;
  bool told = false;
  for (const WorkerReport& worker : outcome.workers) {
    told |= worker.hello;
    if (!worker.checkpoint.empty() &&
        worker.checkpoint_step > checkpoint_step_) {
      newer = true;
      checkpoint_step_ = worker.checkpoint_step;
      checkpoint_ = worker.checkpoint;
    }
  }
  barren_ = newer || !told ? 0 : barren_ + 1;
  if (most_ == 0 || kind == FailureKind::kNone) return {};
  if (kinds_.count(kind) == 0) {
    return {false, "--restart-on does not name this kind of failure"};
  }
  if (count_ == most_) {
    return {false, absl::StrCat("all ", most_, " restarts are used up")};
  }
  if (barren_ == 2) {
    return {false,
            "twice in a row no newer checkpoint was reached, so another start "
            "would fail likewise"};
  }
  ++count_;
  return {true, ""};
}

}  // namespace mir::tools
