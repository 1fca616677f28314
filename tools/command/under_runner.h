#ifndef MIR_TOOLS_COMMAND_UNDER_RUNNER_H_
#define MIR_TOOLS_COMMAND_UNDER_RUNNER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace mir::tools {

// Where the runner (//tools:train) stands, beside the folder of this program.
std::string RunnerBesideThis();

// Becomes `runner` with `runner_options`, which starts this program again, once
// per rank, with `arguments`. Returns only where that fails.
//
// FAILED_PRECONDITION with the exit code kEnvironment says which file could not
// be run, or that this process is a rank already.
absl::Status BecomeRunner(const std::string& runner,
                          const std::vector<std::string>& runner_options,
                          const std::vector<std::string>& arguments);

// `arguments` without those that set the flags `names` (spelled with dashes):
// `--name=value`, or `--name` and the value that follows it.
std::vector<std::string> WithoutFlags(const std::vector<std::string>& arguments,
                                      const std::vector<std::string>& names);

}  // namespace mir::tools

#endif  // MIR_TOOLS_COMMAND_UNDER_RUNNER_H_
