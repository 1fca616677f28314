#include "tools/train/run_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "mir/base/status_macros.h"

namespace mir::tools {
namespace {

namespace fs = std::filesystem;

absl::Status CannotWrite(const std::string& folder, int why) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot write to the output folder ", folder, ": ",
                   std::strerror(why), "\nhelp: choose another with --out"));
}

std::string NewId() {
  return absl::StrCat(
      absl::FormatTime("%Y%m%d-%H%M%S-", absl::Now(), absl::UTCTimeZone()),
      absl::StrFormat("%04x", std::random_device()() & 0xFFFF));
}

// Makes `folder` and those it lies in, and notes those that were not there.
absl::Status MakeFolders(const fs::path& folder,
                         std::vector<std::string>* made) {
  fs::path part;
  for (const fs::path& name : folder) {
    part /= name;
    if (name.empty() || part.has_filename() == false) continue;
    if (mkdir(part.c_str(), 0777) == 0) {
      made->push_back(part);
    } else if (struct stat file; errno != EEXIST ||
                                 stat(part.c_str(), &file) != 0 ||
                                 !S_ISDIR(file.st_mode)) {
      return CannotWrite(folder, errno == EEXIST ? ENOTDIR : errno);
    }
  }
  return absl::OkStatus();
}

// rmdir leaves what is not empty.
void RemoveEmptyFolders(const fs::path& folder) {
  std::error_code ignored;
  std::vector<fs::path> inner;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.is_directory(ignored) && !entry.is_symlink(ignored)) {
      inner.push_back(entry.path());
    }
  }
  for (const fs::path& path : inner) RemoveEmptyFolders(path);
  rmdir(folder.c_str());
}

}  // namespace

absl::StatusOr<RunFiles> RunFiles::Make(const std::string& out) {
  RunFiles files;
  if (!out.empty()) {
    files.folder_ = out;
    MIR_RETURN_IF_ERROR(MakeFolders(out, &files.made_));
  } else {
    files.chosen_ = true;
    MIR_RETURN_IF_ERROR(MakeFolders("runs", &files.made_));
    do {
      files.folder_ = "runs/" + NewId();
      if (mkdir(files.folder_.c_str(), 0777) == 0) break;
      if (errno != EEXIST) return CannotWrite(files.folder_, errno);
    } while (true);
    files.made_.push_back(files.folder_);
  }
  if (access(files.folder_.c_str(), W_OK | X_OK) != 0) {
    return CannotWrite(files.folder_, errno);
  }
  return files;
}

absl::Status RunFiles::BeginAttempt() {
  while (mkdir(attempt_folder().c_str(), 0777) != 0) {
    if (errno != EEXIST) return CannotWrite(folder_, errno);
    ++attempt_;
  }
  return absl::OkStatus();
}

absl::Status RunFiles::JoinAttempt(int number) {
  attempt_ = number;
  if (mkdir(attempt_folder().c_str(), 0777) != 0 && errno != EEXIST) {
    return CannotWrite(folder_, errno);
  }
  return absl::OkStatus();
}

absl::Status RunFiles::AddRanks(int first_rank, int ranks) {
  for (int rank = first_rank; rank < first_rank + ranks; ++rank) {
    const std::string folder =
        absl::StrFormat("%s/rank-%05d", attempt_folder(), rank);
    if (mkdir(folder.c_str(), 0777) != 0) return CannotWrite(folder, errno);
  }
  return absl::OkStatus();
}

absl::Status RunFiles::Write(const std::string& name,
                             const std::string& text) const {
  const std::string path = absl::StrCat(folder_, "/", name);
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  std::ofstream file(temporary, std::ios::binary);
  file << text;
  file.close();
  if (!file || std::rename(temporary.c_str(), path.c_str()) != 0) {
    const std::string why = std::strerror(errno);
    std::remove(temporary.c_str());
    return absl::InternalError(absl::StrCat("cannot write ", path, ": ", why));
  }
  return absl::OkStatus();
}

void RunFiles::LinkLatest() const {
  if (!chosen_) return;
  const std::string temporary = absl::StrCat("runs/.latest.", getpid());
  std::error_code ignored;
  fs::create_directory_symlink(name(), temporary, ignored);
  fs::rename(temporary, "runs/latest", ignored);
}

void RunFiles::Discard() const {
  if (made_.empty()) return;
  if (made_.back() == folder_) RemoveEmptyFolders(folder_);
  for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) {
    rmdir(folder->c_str());
  }
}

std::string RunFiles::name() const {
  const fs::path path = fs::path(folder_).lexically_normal();
  return path.has_filename() ? path.filename() : path.parent_path().filename();
}

std::string RunFiles::attempt_folder() const {
  return absl::StrCat(folder_, "/attempt-", attempt_);
}

}  // namespace mir::tools
