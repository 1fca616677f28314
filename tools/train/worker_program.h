#ifndef MIR_TOOLS_TRAIN_WORKER_PROGRAM_H_
#define MIR_TOOLS_TRAIN_WORKER_PROGRAM_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "mir/launch/env.h"
#include "tools/train/console.h"

namespace mir::tools {

// The program to start: a path.
//
// `path` where it is given (--worker). Else the program of `model`: inside a
// Bazel workspace (BUILD_WORKSPACE_DIRECTORY, which `bazel run` sets) Bazel
// builds it first, with --config=cuda where `cuda`; otherwise it stands beside
// this program, as train_<model>.
//
// Errors carry their exit code: kArguments for an unknown model (the nearest is
// suggested), kNotFound and kNotExecutable for a program that is missing or
// cannot be executed, kEnvironment where Bazel fails.
absl::StatusOr<std::string> FindWorker(const std::string& path,
                                       const std::string& model, bool cuda,
                                       const launch::Env& env,
                                       Console* console);

// What FindWorker would do, in a line, for --dry-run. Errors for an unknown
// model.
absl::StatusOr<std::string> DescribeWorker(const std::string& path,
                                           const std::string& model, bool cuda,
                                           const launch::Env& env);

// The path of the built file called `name`, from the text of Bazel's
// --build_event_json_file; empty where it is not there.
std::string BuiltFile(absl::string_view build_events, absl::string_view name);

}  // namespace mir::tools

#endif  // MIR_TOOLS_TRAIN_WORKER_PROGRAM_H_
