#ifndef MIR_TOOLS_COMMAND_RUN_COMMAND_H_
#define MIR_TOOLS_COMMAND_RUN_COMMAND_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "mir/base/command_line.h"

namespace mir::tools {

// The main of a command that takes options alone: goes where `bazel run` was
// called, sets the flags, or prints `usage` and the options for --help, and
// calls `run`. Prints an error as one line on stderr and returns its exit code;
// what LibTorch throws is an error too.
int RunCommand(int argc, const char* const* argv, const std::string& usage,
               const std::function<absl::Status()>& run);

// The same for a command that takes arguments (files) beside its options.
int RunCommandWithArguments(
    int argc, const char* const* argv, const std::string& usage,
    const std::function<absl::Status(const CommandLine& line)>& run);

// "  Registered 3 pairs": a line on stdout, its verb right-aligned.
void Say(const std::string& verb, const std::string& what);

}  // namespace mir::tools

#endif  // MIR_TOOLS_COMMAND_RUN_COMMAND_H_
