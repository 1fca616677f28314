#ifndef MIR_LAUNCH_WORKING_DIRECTORY_H_
#define MIR_LAUNCH_WORKING_DIRECTORY_H_

#include "absl/status/status.h"
#include "mir/launch/env.h"

namespace mir::launch {

// Goes to the folder that `bazel run` was called from, so that paths on a
// command line mean what they meant there (BUILD_WORKING_DIRECTORY); stays
// where it is without. FAILED_PRECONDITION names a folder that it cannot enter.
absl::Status EnterCallersDirectory(const Env& env);

}  // namespace mir::launch

#endif  // MIR_LAUNCH_WORKING_DIRECTORY_H_
