#ifndef MIR_LAUNCH_CPUS_H_
#define MIR_LAUNCH_CPUS_H_

#include <string>
#include <vector>

namespace mir::launch {

// How many CPUs this process may use, at least 1: those of its affinity mask,
// and no more than the quota of its control groups (version 1 or 2) allows,
// rounded down. Hardware threads count as CPUs.
int AllowedCpus();

// The quota of the control groups that `cgroup_file` (as /proc/self/cgroup)
// lists, in CPUs; 0 where there is none. `root` is where they are mounted, as
// /sys/fs/cgroup. Exposed for tests.
double CgroupCpuQuota(const std::string& cgroup_file, const std::string& root);

// The numbers of the CPUs that this process may run on, ascending.
std::vector<int> AllowedCpuNumbers();

// The numbers in "0-3,8", as the kernel lists CPUs; what is no number is left
// out.
std::vector<int> ParseCpuList(const std::string& list);

// The CPUs of each NUMA node, as `root` (/sys/devices/system/node) lists them;
// one list of none where it does not.
std::vector<std::vector<int>> NumaNodes(const std::string& root);

// How processes of one machine are bound to CPUs.
enum class CpuBinding {
  kNone,
  kCores,  // Each to an equal share of the allowed CPUs, in their order.
  kNuma,   // Each to one NUMA node; nodes get equal numbers of processes.
};

// The CPUs of process `local_rank` of `processes`; empty for all that are
// allowed: where nothing binds, or nothing allowed would be left. Processes
// share CPUs where there are more of them than CPUs.
std::vector<int> CpusOf(CpuBinding binding, int local_rank, int processes,
                        const std::vector<int>& allowed,
                        const std::vector<std::vector<int>>& numa_nodes);

}  // namespace mir::launch

#endif  // MIR_LAUNCH_CPUS_H_
