#include "tools/train/worker_program.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "mir/base/exit_status.h"
#include "mir/base/status_macros.h"
#include "mir/launch/exit_codes.h"
#include "mir/launch/spawn.h"
#include "mir/models/model_list.h"

namespace mir::tools {
namespace {

// The label of the model's program, from whatever workspace Bazel runs in:
// MIR_REPOSITORY is the name of this repository as Bazel gave it ("@" for the
// workspace itself).
absl::StatusOr<std::string> Label(const std::string& model) {
  absl::StatusOr<models::ModelDescription> found = models::FindModel(model);
  if (!found.ok()) {
    return WithExitCode(absl::InvalidArgumentError(absl::StrCat(
                            "--model ", model, ": ", found.status().message())),
                        launch::kArguments);
  }
  const absl::string_view repository = MIR_REPOSITORY;
  return absl::StrCat(repository == "@" ? "" : repository, found->binary);
}

std::vector<std::string> BazelArguments(const std::string& label, bool cuda) {
  std::vector<std::string> arguments = {"bazel", "build"};
  if (cuda) arguments.push_back("--config=cuda");
  arguments.push_back(label);
  return arguments;
}

std::string BesideThisProgram(const std::string& model) {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path));
  std::string folder(path, size > 0 ? size : 0);
  folder.resize(folder.rfind('/') == std::string::npos ? 0 : folder.rfind('/'));
  return absl::StrCat(folder, "/train_", model);
}

absl::Status CheckExecutable(const std::string& path,
                             absl::string_view remedy) {
  struct stat file;
  if (stat(path.c_str(), &file) != 0) {
    return WithExitCode(
        absl::NotFoundError(absl::StrCat("there is no worker ", path, " (",
                                         std::strerror(errno), ")", remedy)),
        launch::kNotFound);
  }
  if (!S_ISREG(file.st_mode) || access(path.c_str(), X_OK) != 0) {
    return WithExitCode(absl::PermissionDeniedError(absl::StrCat(
                            "the worker ", path, " is not an executable file")),
                        launch::kNotExecutable);
  }
  return absl::OkStatus();
}

std::string InPath(const launch::Env& env, absl::string_view program) {
  const std::string path = launch::Get(env, "PATH");
  for (const absl::string_view folder : absl::StrSplit(path, ':')) {
    const std::string candidate = absl::StrCat(folder, "/", program);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

// A temporary file that is removed with its owner.
class TemporaryFile {
 public:
  explicit TemporaryFile(const launch::Env& env) {
    const std::string folder = launch::Get(env, "TMPDIR");
    path_ = absl::StrCat(folder.empty() ? "/tmp" : folder,
                         "/mir_build_events.XXXXXX");
    fd_ = launch::UniqueFd(mkostemp(&path_[0], O_CLOEXEC));
  }
  ~TemporaryFile() {
    if (fd_.open()) unlink(path_.c_str());
  }
  bool ok() const { return fd_.open(); }
  const std::string& path() const { return path_; }
  std::string Contents() const {
    std::ifstream file(path_, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

 private:
  std::string path_;
  launch::UniqueFd fd_;
};

std::string PercentDecoded(absl::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    int value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        absl::SimpleHexAtoi(text.substr(i + 1, 2), &value)) {
      decoded.push_back(static_cast<char>(value));
      i += 2;
    } else {
      decoded.push_back(text[i]);
    }
  }
  return decoded;
}

absl::StatusOr<std::string> Build(const std::string& label, bool cuda,
                                  const std::string& workspace,
                                  const launch::Env& env, Console* console) {
  const auto failed = [](const std::string& why, int code) {
    return WithExitCode(absl::FailedPreconditionError(why), code);
  };
  const std::string bazel = InPath(env, "bazel");
  if (bazel.empty()) {
    return failed(
        "cannot build the worker: there is no bazel in PATH\n"
        "help: give a ready worker with --worker PATH",
        launch::kNotFound);
  }
  const TemporaryFile events(env);
  if (!events.ok()) {
    return failed(absl::StrCat("cannot make a temporary file: ",
                               std::strerror(errno), "; set TMPDIR"),
                  launch::kEnvironment);
  }
  launch::Command command;
  command.argv = BazelArguments(label, cuda);
  command.argv[0] = bazel;
  command.argv.push_back(
      absl::StrCat("--build_event_json_file=", events.path()));
  command.env = env;
  command.directory = workspace;

  console->Say("Compiling", label);
  console->Flush();
  const absl::Time start = absl::Now();
  int code = 0;
  if (console->StderrIsTerminal()) {
    command.argv.insert(command.argv.end(),
                        {"--show_progress", "--ui_event_filters=-info"});
    MIR_ASSIGN_OR_RETURN(const int status, launch::RunAndWait(command));
    code = launch::ExitCodeOfWaitStatus(status);
  } else {
    MIR_ASSIGN_OR_RETURN(const launch::Captured captured,
                         launch::RunAndCapture(command));
    code = launch::ExitCodeOfWaitStatus(captured.wait_status);
    if (code != 0) console->Line(captured.output);
  }
  if (code != 0) {
    return failed(absl::StrCat("cannot build ", label, ": bazel ended with ",
                               code, " in ", workspace),
                  launch::kEnvironment);
  }
  const std::string name = label.substr(label.rfind(':') + 1);
  std::string path = BuiltFile(events.Contents(), name);
  if (path.empty()) {
    return failed(absl::StrCat("bazel built ", label,
                               " but does not say where it is\n"
                               "help: give it with --worker PATH"),
                  launch::kEnvironment);
  }
  console->Say("Finished",
               absl::StrFormat("%s in %.1fs", name,
                               absl::ToDoubleSeconds(absl::Now() - start)));
  return path;
}

}  // namespace

std::string BuiltFile(absl::string_view build_events, absl::string_view name) {
  for (const absl::string_view line : absl::StrSplit(build_events, '\n')) {
    const nlohmann::json event = nlohmann::json::parse(
        line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
    if (!event.is_object() || !event.contains("namedSetOfFiles")) continue;
    const nlohmann::json& files = event["namedSetOfFiles"];
    if (!files.is_object() || !files.contains("files")) continue;
    for (const nlohmann::json& file : files["files"]) {
      if (!file.is_object() || !file.contains("uri")) continue;
      constexpr absl::string_view kScheme = "file://";
      const std::string uri = file["uri"].get<std::string>();
      if (absl::StartsWith(uri, kScheme) &&
          absl::EndsWith(uri, absl::StrCat("/", name))) {
        return PercentDecoded(uri.substr(kScheme.size()));
      }
    }
  }
  return "";
}

absl::StatusOr<std::string> FindWorker(const std::string& path,
                                       const std::string& model, bool cuda,
                                       const launch::Env& env,
                                       Console* console) {
  if (!path.empty()) {
    MIR_RETURN_IF_ERROR(CheckExecutable(path, ""));
    return path;
  }
  MIR_ASSIGN_OR_RETURN(const std::string label, Label(model));
  const std::string workspace = launch::Get(env, "BUILD_WORKSPACE_DIRECTORY");
  std::string worker;
  if (workspace.empty()) {
    worker = BesideThisProgram(model);
  } else {
    MIR_ASSIGN_OR_RETURN(worker, Build(label, cuda, workspace, env, console));
  }
  MIR_RETURN_IF_ERROR(
      CheckExecutable(worker,
                      "\nhelp: give it with --worker PATH, or start by `bazel "
                      "run //tools:train`"
                      " inside the workspace, which builds it"));
  return worker;
}

absl::StatusOr<std::string> DescribeWorker(const std::string& path,
                                           const std::string& model, bool cuda,
                                           const launch::Env& env) {
  if (!path.empty()) return path;
  MIR_ASSIGN_OR_RETURN(const std::string label, Label(model));
  if (!launch::Has(env, "BUILD_WORKSPACE_DIRECTORY")) {
    return BesideThisProgram(model);
  }
  return absl::StrCat("what `", absl::StrJoin(BazelArguments(label, cuda), " "),
                      "` makes");
}

}  // namespace mir::tools
