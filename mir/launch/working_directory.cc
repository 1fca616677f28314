#include "mir/launch/working_directory.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

namespace mir::launch {

absl::Status EnterCallersDirectory(const Env& env) {
  const std::string folder = Get(env, "BUILD_WORKING_DIRECTORY");
  if (folder.empty() || chdir(folder.c_str()) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("cannot go to ", folder,
                   " (BUILD_WORKING_DIRECTORY): ", std::strerror(errno)));
}

}  // namespace mir::launch
