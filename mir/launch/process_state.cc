#include "mir/launch/process_state.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace mir::launch {
namespace {

namespace fs = std::filesystem;

std::string FirstLine(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

std::string FolderOf(pid_t pid, pid_t thread) {
  return thread == 0 ? absl::StrCat("/proc/", pid)
                     : absl::StrCat("/proc/", pid, "/task/", thread);
}

}  // namespace

ProcessState ProcessStateOf(pid_t pid, pid_t thread) {
  ProcessState state;
  const std::string folder = FolderOf(pid, thread);
  // "12 (name) S …"; the name may hold anything.
  const std::string stat = FirstLine(folder + "/stat");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= stat.size()) {
    return state;
  }
  state.code = stat[name_end + 2];
  state.waits_in = FirstLine(folder + "/wchan");
  if (state.waits_in == "0") state.waits_in.clear();
  const std::string statm = FirstLine(folder + "/statm");
  const std::vector<std::string> pages = absl::StrSplit(statm, ' ');
  int64_t resident = 0;
  if (pages.size() > 1 && absl::SimpleAtoi(pages[1], &resident)) {
    state.resident_bytes = resident * sysconf(_SC_PAGESIZE);
  }
  return state;
}

std::string Describe(const ProcessState& state) {
  const std::string where =
      state.waits_in.empty() ? "" : absl::StrCat(" in ", state.waits_in);
  switch (state.code) {
    case 0:
      return "gone";
    case 'R':
      return "running";
    case 'S':
      return absl::StrCat("waiting", where);
    case 'D':
      return absl::StrCat("waiting for a device or a file system", where);
    case 'T':
      return "stopped";
    case 't':
      return "stopped by a debugger";
    case 'Z':
      return "dead";
    default:
      return absl::StrCat("in state ", std::string(1, state.code));
  }
}

std::string DescribeThreads(pid_t pid) {
  std::vector<pid_t> threads;
  std::error_code error;
  for (const auto& entry :
       fs::directory_iterator(absl::StrCat("/proc/", pid, "/task"), error)) {
    int thread = 0;
    if (absl::SimpleAtoi(entry.path().filename().string(), &thread)) {
      threads.push_back(thread);
    }
  }
  std::sort(threads.begin(), threads.end());
  std::string text;
  for (const pid_t thread : threads) {
    absl::StrAppend(&text, "thread ", thread, " ",
                    FirstLine(FolderOf(pid, thread) + "/comm"), ": ",
                    Describe(ProcessStateOf(pid, thread)), "\n");
  }
  return text;
}

bool CatchesSignal(pid_t pid, int signal) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(file, line);) {
    absl::string_view rest = line;
    if (!absl::ConsumePrefix(&rest, "SigCgt:")) continue;
    uint64_t mask = 0;
    return absl::SimpleHexAtoi(rest, &mask) && (mask >> (signal - 1) & 1) != 0;
  }
  return false;
}

}  // namespace mir::launch
