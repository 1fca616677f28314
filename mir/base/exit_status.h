#ifndef MIR_BASE_EXIT_STATUS_H_
#define MIR_BASE_EXIT_STATUS_H_

#include "absl/status/status.h"

namespace mir {

// `status` with the exit code that a program should end with because of it. An
// OK status and one that has a code already stay as they are: the place that
// knows most, the innermost, decides.
absl::Status WithExitCode(absl::Status status, int code);

// 0 for an OK status, its code where one was given, else 2 for an
// INVALID_ARGUMENT and 1 for anything else.
int ExitCodeOf(const absl::Status& status);

}  // namespace mir

#endif  // MIR_BASE_EXIT_STATUS_H_
