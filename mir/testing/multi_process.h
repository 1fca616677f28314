#ifndef MIR_TESTING_MULTI_PROCESS_H_
#define MIR_TESTING_MULTI_PROCESS_H_

#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace mir::testing {

struct ProcessesOptions {
  int count = 2;
  // Added to the environment of process `rank`. Without it a process has the
  // test's own, less what GoogleTest and Bazel read.
  std::function<std::map<std::string, std::string>(int rank)> environment =
      nullptr;
  // Processes that still run then are killed.
  absl::Duration deadline = absl::Seconds(60);
};

// How a process ended.
struct ProcessResult {
  int exit_code = -1;  // -1 if by a signal.
  int signal = 0;
  bool timed_out = false;
  std::string value;   // What its body returned.
  std::string output;  // What it wrote, stdout and stderr together.
};
std::ostream& operator<<(std::ostream& out, const ProcessResult& result);

// Runs `body` in real processes at once, one per rank, and waits for them.
//
// Each process is this test program anew, told to run this test alone: a fork
// would inherit locks and thread pools of LibTorch that have no threads any
// more. It runs the test as far as this call, then the body, and ends there: 0
// if no expectation failed, else 1. So a test calls this once, and what it does
// before happens in every process. Files belong in a fresh folder under
// TEST_TMPDIR, whose name the environment may carry.
std::vector<ProcessResult> RunProcesses(
    const ProcessesOptions& options,
    const std::function<std::string(int rank)>& body);

// Whether this is one of the processes that RunProcesses started.
bool IsChildProcess();

// Matches a ProcessResult that ended with 0.
MATCHER(Succeeded, "ended with exit code 0") { return arg.exit_code == 0; }

// Matches a ProcessResult that ended with `code`.
MATCHER_P(ExitedWith, code,
          "ended with exit code " + ::testing::PrintToString(code)) {
  return arg.exit_code == code;
}

}  // namespace mir::testing

#endif  // MIR_TESTING_MULTI_PROCESS_H_
