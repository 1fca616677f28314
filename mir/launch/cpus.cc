#include "mir/launch/cpus.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace mir::launch {
namespace {

std::string FirstLine(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

// `quota` microseconds of each `period`, in CPUs; 0 for no limit ("max", -1).
double Ratio(absl::string_view quota, absl::string_view period) {
  double a = 0;
  double b = 0;
  if (!absl::SimpleAtod(quota, &a) || !absl::SimpleAtod(period, &b)) return 0;
  return a > 0 && b > 0 ? a / b : 0;
}

double QuotaOf(const std::string& folder, bool version_2) {
  if (!version_2) {
    return Ratio(FirstLine(folder + "/cpu.cfs_quota_us"),
                 FirstLine(folder + "/cpu.cfs_period_us"));
  }
  const std::string line = FirstLine(folder + "/cpu.max");
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  return words.size() == 2 ? Ratio(words[0], words[1]) : 0;
}

}  // namespace

double CgroupCpuQuota(const std::string& cgroup_file, const std::string& root) {
  double least = 0;
  std::ifstream file(cgroup_file);
  for (std::string line; std::getline(file, line);) {
    // "0::/a/b" in version 2, "4:cpu,cpuacct:/a/b" in version 1.
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const bool version_2 = parts[1].empty();
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (!version_2 && std::find(controllers.begin(), controllers.end(),
                                "cpu") == controllers.end()) {
      continue;
    }
    const std::string mount =
        version_2 ? root : absl::StrCat(root, "/", parts[1]);
    // A group is also bound by those above it. Inside a container the group's
    // own path may be missing, and its limit stands at the root.
    std::string path = parts[2];
    while (true) {
      if (absl::EndsWith(path, "/")) path.pop_back();
      const double quota = QuotaOf(mount + path, version_2);
      if (quota > 0) least = least == 0 ? quota : std::min(least, quota);
      if (path.empty()) break;
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
  return least;
}

std::vector<int> AllowedCpuNumbers() {
  std::vector<int> numbers;
  // The affinity mask may be wider than cpu_set_t.
  for (int bits = CPU_SETSIZE; bits <= 1 << 20 && numbers.empty(); bits *= 2) {
    cpu_set_t* const set = CPU_ALLOC(bits);
    const size_t bytes = CPU_ALLOC_SIZE(bits);
    if (sched_getaffinity(0, bytes, set) == 0) {
      for (int cpu = 0; cpu < bits; ++cpu) {
        if (CPU_ISSET_S(cpu, bytes, set)) numbers.push_back(cpu);
      }
    }
    CPU_FREE(set);
  }
  return numbers;
}

std::vector<int> ParseCpuList(const std::string& list) {
  std::vector<int> numbers;
  for (const absl::string_view part : absl::StrSplit(list, ',')) {
    const std::vector<absl::string_view> ends =
        absl::StrSplit(part, absl::MaxSplits('-', 1));
    int first = 0;
    int last = 0;
    if (!absl::SimpleAtoi(ends.front(), &first) ||
        !absl::SimpleAtoi(ends.back(), &last)) {
      continue;
    }
    for (int cpu = first; cpu <= last; ++cpu) numbers.push_back(cpu);
  }
  return numbers;
}

std::vector<std::vector<int>> NumaNodes(const std::string& root) {
  std::vector<std::vector<int>> nodes;
  for (const int node : ParseCpuList(FirstLine(root + "/online"))) {
    std::vector<int> cpus =
        ParseCpuList(FirstLine(absl::StrCat(root, "/node", node, "/cpulist")));
    if (!cpus.empty()) nodes.push_back(std::move(cpus));
  }
  if (nodes.empty()) nodes.emplace_back();
  return nodes;
}

std::vector<int> CpusOf(CpuBinding binding, int local_rank, int processes,
                        const std::vector<int>& allowed,
                        const std::vector<std::vector<int>>& numa_nodes) {
  const int count = static_cast<int>(allowed.size());
  if (binding == CpuBinding::kNone || count == 0) return {};
  if (binding == CpuBinding::kCores) {
    const int share = std::max(count / processes, 1);
    const int first = local_rank * share % count;
    return {allowed.begin() + first,
            allowed.begin() + std::min(first + share, count)};
  }
  const std::vector<int>& node = numa_nodes[static_cast<size_t>(local_rank) *
                                            numa_nodes.size() / processes];
  std::vector<int> cpus;
  for (const int cpu : node) {
    if (std::binary_search(allowed.begin(), allowed.end(), cpu)) {
      cpus.push_back(cpu);
    }
  }
  return cpus;
}

int AllowedCpus() {
  int cpus = static_cast<int>(AllowedCpuNumbers().size());
  if (cpus == 0) cpus = static_cast<int>(std::thread::hardware_concurrency());
  const double quota = CgroupCpuQuota("/proc/self/cgroup", "/sys/fs/cgroup");
  if (quota > 0) cpus = std::min(cpus, static_cast<int>(quota));
  return std::max(cpus, 1);
}

}  // namespace mir::launch
