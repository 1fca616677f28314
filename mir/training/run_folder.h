#ifndef MIR_TRAINING_RUN_FOLDER_H_
#define MIR_TRAINING_RUN_FOLDER_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace mir::training {

// The folder of one run:
//
//   config.json              what was asked for
//   metrics.jsonl            a line per step and per validation
//   checkpoints/latest.pth   the last saved state
//   checkpoints/best.pth     the best by validation
//   summary.png              written at the end
//
// Only the main process writes; every rank may read. Not thread-safe.
class RunFolder {
 public:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}

  // Makes the folders where they are missing and tries to write there. A folder
  // that holds another run is FAILED_PRECONDITION unless `resume`: nothing is
  // overwritten. Whatever cannot be written is PERMISSION_DENIED, naming the
  // path, here and below. Both carry exit code 3.
  absl::Status Prepare(bool resume) const;

  // Keeps other processes from training in the folder for as long as the result
  // lives. FAILED_PRECONDITION, with exit code 3, where one does. File systems
  // without locks count as free.
  absl::StatusOr<std::shared_ptr<void>> Lock() const;

  // Removes what a process left that was killed while it wrote. Only under the
  // lock.
  void RemoveLeftovers() const;

  // Writes config.json (temporary name, then rename).
  absl::Status WriteConfig(const nlohmann::json& config) const;
  // NOT_FOUND where there is none, DATA_LOSS where it does not parse.
  absl::StatusOr<nlohmann::json> ReadConfig() const;

  // Appends one line to metrics.jsonl. Numbers that are not finite become null.
  absl::Status AppendMetrics(const nlohmann::json& line) const;

  // Drops lines whose `step` is beyond `step`: a run that was stopped between
  // its last checkpoint and its end repeats those steps when resumed. A last
  // line that was cut short is dropped too.
  absl::Status TruncateMetrics(int64_t step) const;

  // The lines of metrics.jsonl, in order; empty where there is no such file.
  absl::StatusOr<std::vector<nlohmann::json>> ReadMetrics() const;

  const std::string& path() const { return path_; }
  std::string latest() const { return path_ + "/checkpoints/latest.pth"; }
  std::string best() const { return path_ + "/checkpoints/best.pth"; }
  std::string summary_picture() const { return path_ + "/summary.png"; }

 private:
  std::string path_;
};

}  // namespace mir::training

#endif  // MIR_TRAINING_RUN_FOLDER_H_
