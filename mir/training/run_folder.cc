#include "mir/training/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "mir/base/exit_status.h"
#include "mir/base/status_macros.h"
#include "mir/launch/exit_codes.h"

namespace mir::training {
namespace {

namespace fs = std::filesystem;

absl::Status CannotWrite(const std::string& path, const std::string& why) {
  return WithExitCode(absl::PermissionDeniedError(
                          absl::StrCat("cannot write to ", path, ": ", why,
                                       "; choose another folder with --out")),
                      launch::kEnvironment);
}

absl::Status WriteWhole(const std::string& path, const std::string& text) {
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  {
    std::ofstream file(temporary, std::ios::binary);
    file << text;
    file.flush();
    if (!file) {
      const std::string why = std::strerror(errno);
      std::remove(temporary.c_str());
      return CannotWrite(path, why);
    }
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const std::string why = std::strerror(errno);
    std::remove(temporary.c_str());
    return CannotWrite(path, why);
  }
  return absl::OkStatus();
}

std::string AsLine(const nlohmann::json& json) {
  return json.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/false,
                   nlohmann::json::error_handler_t::replace) +
         "\n";
}

}  // namespace

absl::Status RunFolder::Prepare(bool resume) const {
  std::error_code error;
  fs::create_directories(path_ + "/checkpoints", error);
  if (error) return CannotWrite(path_, error.message());
  const std::string probe = absl::StrCat(path_, "/.", getpid(), ".probe");
  MIR_RETURN_IF_ERROR(WriteWhole(probe, "x"));
  fs::remove(probe, error);
  if (resume) return absl::OkStatus();
  // A run that ended before it had saved anything leaves its first validation.
  bool has_steps = false;
  MIR_ASSIGN_OR_RETURN(const std::vector<nlohmann::json> lines, ReadMetrics());
  for (const nlohmann::json& line : lines) {
    has_steps |= !line.contains("step") || line["step"] != 0;
  }
  if (!has_steps && !fs::exists(latest(), error)) {
    fs::remove(path_ + "/metrics.jsonl", error);
  } else {
    return WithExitCode(
        absl::FailedPreconditionError(absl::StrCat(
            path_,
            " holds another run; go on with it by --resume, or choose "
            "another folder with --out")),
        launch::kEnvironment);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<void>> RunFolder::Lock() const {
  const std::string path = path_ + "/.lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return CannotWrite(path, std::strerror(errno));
  // Closing the file gives the lock up, as the end of the process does.
  std::shared_ptr<void> lock(nullptr, [fd](void*) { close(fd); });
  if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return WithExitCode(
        absl::FailedPreconditionError(
            absl::StrCat("another process is training in ", path_,
                         "; wait for it, or choose another folder with --out")),
        launch::kEnvironment);
  }
  return lock;
}

void RunFolder::RemoveLeftovers() const {
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(path_, error)) {
    const fs::path extension = entry.path().extension();
    if (extension == ".tmp" || extension == ".probe") {
      leftovers.push_back(entry.path());
    }
  }
  for (const fs::path& path : leftovers) fs::remove(path, error);
}

absl::Status RunFolder::WriteConfig(const nlohmann::json& config) const {
  return WriteWhole(path_ + "/config.json",
                    config.dump(2, ' ', /*ensure_ascii=*/false,
                                nlohmann::json::error_handler_t::replace) +
                        "\n");
}

absl::StatusOr<nlohmann::json> RunFolder::ReadConfig() const {
  const std::string path = path_ + "/config.json";
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(absl::StrCat("there is no ", path));
  }
  nlohmann::json config =
      nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (config.is_discarded()) {
    return absl::DataLossError(absl::StrCat(path, " is not valid JSON"));
  }
  return config;
}

absl::Status RunFolder::AppendMetrics(const nlohmann::json& line) const {
  const std::string path = path_ + "/metrics.jsonl";
  std::ofstream file(path, std::ios::app | std::ios::binary);
  file << AsLine(line);
  file.flush();
  return file ? absl::OkStatus() : CannotWrite(path, std::strerror(errno));
}

absl::StatusOr<std::vector<nlohmann::json>> RunFolder::ReadMetrics() const {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path_ + "/metrics.jsonl", std::ios::binary);
  for (std::string text; std::getline(file, text);) {
    nlohmann::json line =
        nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (line.is_object()) lines.push_back(std::move(line));
  }
  return lines;
}

absl::Status RunFolder::TruncateMetrics(int64_t step) const {
  MIR_ASSIGN_OR_RETURN(const std::vector<nlohmann::json> lines, ReadMetrics());
  std::string kept;
  for (const nlohmann::json& line : lines) {
    const bool numbered =
        line.contains("step") && line["step"].is_number_integer();
    if (numbered && line["step"].get<int64_t>() <= step) kept += AsLine(line);
  }
  return WriteWhole(path_ + "/metrics.jsonl", kept);
}

}  // namespace mir::training
