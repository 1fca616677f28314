#include "mir/launch/env.h"

#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace mir::launch {

Env CurrentEnv() {
  Env env;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const absl::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == absl::string_view::npos) continue;
    env.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return env;
}

bool Has(const Env& env, absl::string_view name) {
  return !Get(env, name).empty();
}

std::string Get(const Env& env, absl::string_view name) {
  const auto found = env.find(name);
  return found == env.end() ? "" : found->second;
}

absl::StatusOr<int64_t> GetInt(const Env& env, absl::string_view name,
                               int64_t least, int64_t most) {
  const std::string text = Get(env, name);
  if (text.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(name, " is not set"));
  }
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < least || value > most) {
    return absl::FailedPreconditionError(absl::StrCat(
        name, "=", text, " is not a whole number from ", least, " to ", most));
  }
  return value;
}

}  // namespace mir::launch
