#ifndef MIR_TOOLS_TRAIN_RUN_FILES_H_
#define MIR_TOOLS_TRAIN_RUN_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace mir::tools {

// The runner's part of a run's folder:
//
//   <run>/plan.json          what was started last
//   <run>/events.jsonl       event_log.h, of all starts
//   <run>/summary.json       how the last start ended, for programs
//   <run>/summary.txt        the same, as it was shown
//   <run>/attempt-K/rank-00000/{stdout.log,stderr.log,error.json,stack.txt}
//
// K counts the starts and restarts of this run from 0.
class RunFiles {
 public:
  // Makes the folder `out`, or for an empty one a new folder runs/<id>; <id> is
  // the time and what keeps two runs apart. FAILED_PRECONDITION, naming the
  // folder and the reason, where that cannot be done or written to.
  static absl::StatusOr<RunFiles> Make(const std::string& out);

  // Makes the folder of the next attempt. Errors as Make, here and below.
  absl::Status BeginAttempt();
  // The same for an attempt that another node may have made already, where
  // nodes share the folder.
  absl::Status JoinAttempt(int number);
  // Makes the folders of `ranks` processes in it.
  absl::Status AddRanks(int first_rank, int ranks);

  // Writes a file of the run's folder whole. INTERNAL names it and the reason.
  absl::Status Write(const std::string& name, const std::string& text) const;

  // Lets runs/latest name this run, if Make chose its folder.
  void LinkLatest() const;

  // Removes the folders that Make made, as far as nothing was put there.
  void Discard() const;

  const std::string& folder() const { return folder_; }  // As it was given.
  std::string name() const;                              // Its last part.
  int attempt() const { return attempt_; }
  std::string attempt_folder() const;  // As `folder`.

 private:
  std::string folder_;
  bool chosen_ = false;
  std::vector<std::string> made_;  // Outer first.
  int attempt_ = 0;
};

}  // namespace mir::tools

#endif  // MIR_TOOLS_TRAIN_RUN_FILES_H_
