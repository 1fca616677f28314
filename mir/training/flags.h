#ifndef MIR_TRAINING_FLAGS_H_
#define MIR_TRAINING_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "mir/base/command_line.h"
#include "mir/models/model_list.h"
#include "mir/training/options.h"

namespace mir::training {

// A command line of `train_<model>`, read.
struct TrainCommand {
  TrainOptions options;
  std::string configuration;           // --config
  std::vector<std::string> overrides;  // --set, split at ;
  bool check_args = false;             // --check-args
};

// The options that the flags hold after ParseCommandLine set them. What the
// command line did not give comes from `defaults`. INVALID_ARGUMENT as
// CheckOptions, and for a list or a leftover argument that does not parse.
absl::StatusOr<TrainCommand> TrainCommandFromFlags(
    const CommandLine& line, const models::TrainingDefaults& defaults);

}  // namespace mir::training

#endif  // MIR_TRAINING_FLAGS_H_
