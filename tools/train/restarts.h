#ifndef MIR_TOOLS_TRAIN_RESTARTS_H_
#define MIR_TOOLS_TRAIN_RESTARTS_H_

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "mir/launch/supervisor.h"

namespace mir::tools {

// Why an attempt ended, as --restart-on names it.
enum class FailureKind {
  kNone,     // It did not fail, or was told to end; never started again.
  kSignal,   // A rank was ended by a signal.
  kPeer,     // Ranks lost each other, and nobody knows why.
  kPreempt,  // All saved and stopped, asked by somebody else.
  kHang,     // No progress.
  kError,    // Any other end, such as an exit code of its own.
};

// Of "signal,peer". INVALID_ARGUMENT, listing the names, for anything else.
absl::StatusOr<std::set<FailureKind>> ParseFailureKinds(absl::string_view text);

// Another start does not mend what the command line or the machine lacks: the
// exit codes of `ours` for that are kNone. Other programs have codes of their
// own.
FailureKind FailureKindOf(const launch::Outcome& outcome, bool ours);

// Decides whether all ranks are started again after an attempt.
class Restarts {
 public:
  // Up to `most` restarts, after failures of these kinds.
  Restarts(int most, std::set<FailureKind> kinds)
      : most_(most), kinds_(std::move(kinds)) {}

  struct Decision {
    bool restart = false;
    // Why there is no restart although some were allowed; empty where there is
    // nothing to say.
    std::string why_not;
  };

  // `kind` is that of the whole run, of which `outcome` is one node's part. Two
  // attempts in a row without a newer checkpoint end it too, where the
  // workers tell of checkpoints: the third would fail likewise.
  Decision After(const launch::Outcome& outcome, FailureKind kind);

  int count() const { return count_; }  // How many there were.
  int most() const { return most_; }
  // The newest checkpoint of all attempts; -1 and empty before the first.
  int64_t checkpoint_step() const { return checkpoint_step_; }
  const std::string& checkpoint() const { return checkpoint_; }

 private:
  const int most_;
  const std::set<FailureKind> kinds_;
  int count_ = 0;
  int barren_ = 0;  // Attempts in a row without a newer checkpoint.
  int64_t checkpoint_step_ = -1;
  std::string checkpoint_;
};

}  // namespace mir::tools

#endif  // MIR_TOOLS_TRAIN_RESTARTS_H_
