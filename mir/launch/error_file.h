#ifndef MIR_LAUNCH_ERROR_FILE_H_
#define MIR_LAUNCH_ERROR_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "mir/launch/env.h"

namespace mir::launch {

// The error file of torchelastic, by which a worker tells its launcher why it
// failed; TORCHELASTIC_ERROR_FILE names it. torchrun and our runner show it.
//
//   {"message":{"message":"…","extraInfo":{"py_callstack":"…",
//    "timestamp":"1700000000"}}}

struct WorkerError {
  std::string message;
  std::string call_stack;  // Empty where there is none.
  absl::Time time;
};

// Writes `error` to `path` whole: under a temporary name, then renamed, since a
// half-written file crashes torchrun. INTERNAL names the path and the reason.
absl::Status WriteErrorFile(const std::string& path, const WorkerError& error);

// Writes `message` with the present time to the file that
// TORCHELASTIC_ERROR_FILE names, unless one is there already: the first error
// is the cause. Does nothing where the variable is not set.
absl::Status ReportError(const Env& env, absl::string_view message);

// NOT_FOUND where there is no such file; INVALID_ARGUMENT where it is not an
// error file.
absl::StatusOr<WorkerError> ReadErrorFile(const std::string& path);

// Reports an exception that nothing caught (ReportError), writes it to stderr
// and ends the process by SIGABRT, as std::terminate does. Call it once, early
// in main.
void ReportErrorOnTerminate(const Env& env);

}  // namespace mir::launch

#endif  // MIR_LAUNCH_ERROR_FILE_H_
