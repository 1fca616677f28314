#ifndef MIR_LAUNCH_EXIT_CODES_H_
#define MIR_LAUNCH_EXIT_CODES_H_

#include "absl/strings/string_view.h"

namespace mir::launch {

// How a training process, and the runner that started it, end.
enum ExitCode : int {
  kOk = 0,
  kOther = 1,
  kArguments = 2,    // The command line.
  kEnvironment = 3,  // Devices, ports, the output folder, the launcher.
  kData = 10,
  kNumeric = 11,  // A loss that is not finite.
  kCheckpoint = 12,
  kPeer = 20,     // Another rank failed first; this one is only its victim.
  kStopped = 75,  // Asked to stop, and did so after saving a checkpoint.
  kTimeout = 124,
  // Of the runner alone.
  kRunnerFault = 125,
  kNotExecutable = 126,
  kNotFound = 127,
  kSignalBase = 128,  // 128 + n: ended by signal n.
};

// What a code means in a few words ("data", "stopped after a checkpoint");
// empty for a code that has no meaning here.
absl::string_view ExitCodeMeaning(int code);

}  // namespace mir::launch

#endif  // MIR_LAUNCH_EXIT_CODES_H_
