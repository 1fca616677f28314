#include "mir/launch/exit_codes.h"

namespace mir::launch {

absl::string_view ExitCodeMeaning(int code) {
  switch (code) {
    case kOk:
      return "success";
    case kOther:
      return "failure";
    case kArguments:
      return "arguments";
    case kEnvironment:
      return "environment";
    case kData:
      return "data";
    case kNumeric:
      return "a loss that is not finite";
    case kCheckpoint:
      return "checkpoint";
    case kPeer:
      return "another rank failed";
    case kStopped:
      return "stopped after a checkpoint";
    case kTimeout:
      return "timeout";
    case kRunnerFault:
      return "fault of the runner";
    case kNotExecutable:
      return "program not executable";
    case kNotFound:
      return "program not found";
    default:
      return "";
  }
}

}  // namespace mir::launch
