#include "mir/base/exit_status.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"

namespace mir {
namespace {

constexpr char kPayload[] = "mir/exit_code";

}  // namespace

absl::Status WithExitCode(absl::Status status, int code) {
  if (!status.ok() && !status.GetPayload(kPayload).has_value()) {
    status.SetPayload(kPayload, absl::Cord(absl::StrCat(code)));
  }
  return status;
}

int ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return 0;
  int code = 0;
  if (const absl::optional<absl::Cord> payload = status.GetPayload(kPayload);
      payload.has_value() && absl::SimpleAtoi(std::string(*payload), &code)) {
    return code;
  }
  return status.code() == absl::StatusCode::kInvalidArgument ? 2 : 1;
}

}  // namespace mir
