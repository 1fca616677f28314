#ifndef MIR_LAUNCH_ENV_H_
#define MIR_LAUNCH_ENV_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace mir::launch {

// Environment variables by name.
using Env = std::map<std::string, std::string, std::less<>>;

// Those of this process.
Env CurrentEnv();

// Whether `name` is set to something. A variable that is set to the empty
// string counts as not set, here and in the functions below.
bool Has(const Env& env, absl::string_view name);

// The value of `name`, empty where it is not set.
std::string Get(const Env& env, absl::string_view name);

// The value of `name` as a whole number from `least` to `most`.
// FAILED_PRECONDITION, naming the variable, its value and the range, where it
// is not set or is anything else.
absl::StatusOr<int64_t> GetInt(const Env& env, absl::string_view name,
                               int64_t least, int64_t most);

}  // namespace mir::launch

#endif  // MIR_LAUNCH_ENV_H_
