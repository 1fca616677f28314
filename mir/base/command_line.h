#ifndef MIR_BASE_COMMAND_LINE_H_
#define MIR_BASE_COMMAND_LINE_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace mir {

// What is left of a command line after its flags are set.
struct CommandLine {
  std::vector<std::string> arguments;  // Without the program and the flags.
  std::set<std::string> given;         // Names of the flags that were set.
  bool help = false;                   // --help or -h was among the flags.
};

// Sets the ABSL_FLAGs that a command line names, as trainers spell them:
// `--val-every 10`, `--val_every=10`, `--resume`, `--no-resume`; the last one
// wins, and `--` ends the flags.
//
// Unlike absl::ParseCommandLine it never exits. INVALID_ARGUMENT names an
// unknown flag (and the nearest one), a missing value, or a value that does not
// parse with what was wanted. Flags before the wrong one are set.
absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv);

// The program's own flags as text, by name: what a later run needs to set them
// alike.
std::map<std::string, std::string> FlagValues();

// Sets those of `values` (as FlagValues gives them) that the command line did
// not. A name that this program does not have is INVALID_ARGUMENT.
absl::Status SetFlagsNotGiven(const std::map<std::string, std::string>& values,
                              const CommandLine& line);

// The help text: `usage`, then the program's own flags by name, spelled with
// dashes, each with its help and default.
std::string CommandLineHelp(absl::string_view usage);

}  // namespace mir

#endif  // MIR_BASE_COMMAND_LINE_H_
