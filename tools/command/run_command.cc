#include "tools/command/run_command.h"

#include <iostream>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "mir/base/catch_torch.h"
#include "mir/base/command_line.h"
#include "mir/base/exit_status.h"
#include "mir/base/status_macros.h"
#include "mir/launch/env.h"
#include "mir/launch/exit_codes.h"
#include "mir/launch/working_directory.h"

namespace mir::tools {
namespace {

absl::Status RunWithFlags(
    int argc, const char* const* argv, const std::string& usage,
    const std::function<absl::Status(const CommandLine&)>& run) {
  MIR_RETURN_IF_ERROR(
      WithExitCode(launch::EnterCallersDirectory(launch::CurrentEnv()),
                   launch::kEnvironment));
  MIR_ASSIGN_OR_RETURN(const CommandLine line, ParseCommandLine(argc, argv));
  if (line.help) {
    std::cout << CommandLineHelp(usage);
    return absl::OkStatus();
  }
  return CatchTorch([&] { return run(line); });
}

}  // namespace

int RunCommandWithArguments(
    int argc, const char* const* argv, const std::string& usage,
    const std::function<absl::Status(const CommandLine& line)>& run) {
  const absl::Status status = RunWithFlags(argc, argv, usage, run);
  if (!status.ok()) std::cerr << "error: " << status.message() << std::endl;
  return ExitCodeOf(status);
}

int RunCommand(int argc, const char* const* argv, const std::string& usage,
               const std::function<absl::Status()>& run) {
  return RunCommandWithArguments(
      argc, argv, usage, [&](const CommandLine& line) -> absl::Status {
        if (!line.arguments.empty()) {
          return absl::InvalidArgumentError(absl::StrCat(
              "'", line.arguments[0],
              "' is no option; options begin with -- (--help lists all)"));
        }
        return run();
      });
}

void Say(const std::string& verb, const std::string& what) {
  // In one piece, since threads may speak at once.
  std::cout << absl::StrFormat("%12s %s\n", verb, what) << std::flush;
}

}  // namespace mir::tools
