#include "mir/checkpoint/atomic_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace mir::checkpoint {
namespace {

constexpr size_t kMaxNamePart = 200;  // File names have at most 255 bytes.

std::filesystem::path Resolve(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_symlink(path, error)) {
    const std::filesystem::path target =
        std::filesystem::weakly_canonical(path, error);
    if (!error) return target;
  }
  return path;
}

std::string FolderOf(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path().string() : ".";
}

// What all temporary files of `path` begin with, without their folder.
std::string Prefix(const std::filesystem::path& path) {
  return absl::StrCat(".", path.filename().string().substr(0, kMaxNamePart),
                      ".");
}

// Removes what killed processes left: a living writer holds a lock.
void RemoveAbandoned(const std::filesystem::path& path) {
  const std::string folder = FolderOf(path);
  const std::string prefix = Prefix(path);
  std::vector<std::string> candidates;
  if (DIR* listing = opendir(folder.c_str())) {
    while (const dirent* entry = readdir(listing)) {
      const absl::string_view name = entry->d_name;
      if (absl::StartsWith(name, prefix) && absl::EndsWith(name, ".tmp")) {
        candidates.push_back(absl::StrCat(folder, "/", name));
      }
    }
    closedir(listing);
  }
  for (const std::string& candidate : candidates) {
    const int descriptor =
        open(candidate.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (descriptor < 0) continue;
    if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) unlink(candidate.c_str());
    close(descriptor);
  }
}

}  // namespace

AtomicFile::AtomicFile(std::string path, std::string temporary, int descriptor)
    : path_(std::move(path)),
      temporary_(std::move(temporary)),
      writer_(descriptor) {}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::Status AtomicFile::Fail(int error, const char* what) const {
  return absl::ErrnoToStatus(
      error, absl::StrCat(path_, ": ", what,
                          "; the file that was there, if any, is unchanged"));
}

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(
    const std::string& path) {
  static std::atomic<int> counter = 0;
  const std::filesystem::path target = Resolve(path);
  std::error_code error;
  if (target.filename().empty() ||
      std::filesystem::is_directory(target, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is a folder; name a file to write"));
  }
  RemoveAbandoned(target);
  // Twice is enough but for a name that others keep taking.
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::string temporary =
        absl::StrCat(FolderOf(target), "/", Prefix(target), getpid(), "-",
                     counter.fetch_add(1), ".tmp");
    const int descriptor =
        open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0) {
      if (errno == EEXIST) continue;
      return absl::ErrnoToStatus(
          errno, absl::StrCat(path, ": cannot be written in its folder"));
    }
    std::unique_ptr<AtomicFile> file(
        new AtomicFile(target.string(), temporary, descriptor));
    // Not all file systems lock; then nothing tells a file abandoned either.
    flock(descriptor, LOCK_EX | LOCK_NB);
    struct stat info {};
    // Another process may have taken it for abandoned before it was locked.
    if (fstat(descriptor, &info) == 0 && info.st_nlink == 0) continue;
    return file;
  }
  return absl::UnavailableError(
      absl::StrCat(path, ": no free name for a temporary file in its folder"));
}

absl::Status AtomicFile::Write(const void* data, size_t size) {
  const int error = writer_.Write(data, size);
  return error == 0 ? absl::OkStatus() : Fail(error, "cannot be written");
}

absl::Status AtomicFile::Commit() {
  if (const int error = writer_.Finish()) {
    return Fail(error, "cannot be written");
  }
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return Fail(errno, "cannot be given its name");
  }
  temporary_.clear();
  // The name is durable once the folder is.
  const int folder = open(FolderOf(path_).c_str(), O_RDONLY | O_CLOEXEC);
  if (folder >= 0) {
    const int result = fsync(folder);
    const int error = errno;
    close(folder);
    // Some file systems cannot, and need not.
    if (result != 0 && error != EINVAL && error != ENOTSUP) {
      return absl::ErrnoToStatus(
          error, absl::StrCat(path_,
                              ": written, but its folder could not be "
                              "made durable"));
    }
  }
  return absl::OkStatus();
}

}  // namespace mir::checkpoint
