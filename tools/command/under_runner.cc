#include "tools/command/under_runner.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "mir/base/exit_status.h"
#include "mir/launch/env.h"
#include "mir/launch/exit_codes.h"

namespace mir::tools {
namespace {

absl::Status CannotRun(const std::string& file, const std::string& why) {
  return WithExitCode(absl::FailedPreconditionError(absl::StrCat(
                          "cannot start ranks by ", file, ": ", why)),
                      launch::kEnvironment);
}

}  // namespace

std::string RunnerBesideThis() {
  const std::filesystem::path self =
      std::filesystem::read_symlink("/proc/self/exe");
  return (self.parent_path().parent_path() / "train" / "train").string();
}

absl::Status BecomeRunner(const std::string& runner,
                          const std::vector<std::string>& runner_options,
                          const std::vector<std::string>& arguments) {
  // Else each of its ranks would start the ranks anew, without end.
  if (launch::Has(launch::CurrentEnv(), "RANK")) {
    return CannotRun(runner, "this process is a rank already (RANK is set)");
  }
  std::vector<std::string> line = {
      runner, "--worker",
      std::filesystem::read_symlink("/proc/self/exe").string()};
  line.insert(line.end(), runner_options.begin(), runner_options.end());
  line.push_back("--");
  line.insert(line.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& argument : line) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  execv(runner.c_str(), pointers.data());
  return CannotRun(runner, strerror(errno));
}

std::vector<std::string> WithoutFlags(const std::vector<std::string>& arguments,
                                      const std::vector<std::string>& names) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const absl::string_view argument = arguments[i];
    const size_t equals = argument.find('=');
    const std::string name =
        absl::StartsWith(argument, "--")
            ? absl::StrReplaceAll(argument.substr(2, equals - 2), {{"_", "-"}})
            : "";
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      kept.push_back(arguments[i]);
    } else if (equals == argument.npos) {
      ++i;  // Its value.
    }
  }
  return kept;
}

}  // namespace mir::tools
