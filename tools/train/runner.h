#ifndef MIR_TOOLS_TRAIN_RUNNER_H_
#define MIR_TOOLS_TRAIN_RUNNER_H_

#include <string>
#include <vector>

#include "mir/launch/env.h"

namespace mir::tools {

// Runs `arguments`, the command line without the program's name, to the end and
// returns the exit code (launch/exit_codes.h). Goes to the folder that
// BUILD_WORKING_DIRECTORY names, which is where `bazel run` was called.
int RunTraining(const std::vector<std::string>& arguments, launch::Env env);

}  // namespace mir::tools

#endif  // MIR_TOOLS_TRAIN_RUNNER_H_
