#ifndef MIR_TOOLS_TRAIN_JUNIT_H_
#define MIR_TOOLS_TRAIN_JUNIT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace mir::tools {

// One line of a test report.
struct JunitCase {
  enum class Result { kPassed, kFailed, kError, kSkipped };
  std::string name;
  double seconds = 0;
  Result result = Result::kPassed;
  std::string message;  // Why it did not pass, in a line.
  std::string output;   // What it said last.
};

// A report in the XML of JUnit that build servers read: `suite` with its cases.
// Characters that XML cannot hold become "?"; so do bytes that are no UTF-8.
std::string JunitReport(absl::string_view suite,
                        const std::vector<JunitCase>& cases);

// Writes it to `path`, whose folder must be there. FAILED_PRECONDITION names
// the path and the reason.
absl::Status WriteJunitReport(const std::string& path, absl::string_view suite,
                              const std::vector<JunitCase>& cases);

}  // namespace mir::tools

#endif  // MIR_TOOLS_TRAIN_JUNIT_H_
