#ifndef MIR_LAUNCH_CPUS_H_
#define MIR_LAUNCH_CPUS_H_

#include <string>

namespace mir::launch {

// How many CPUs this process may use, at least 1: those of its affinity mask,
// and no more than the quota of its control groups (version 1 or 2) allows,
// rounded down. Hardware threads count as CPUs.
int AllowedCpus();

// The quota of the control groups that `cgroup_file` (as /proc/self/cgroup)
// lists, in CPUs; 0 where there is none. `root` is where they are mounted, as
// /sys/fs/cgroup. Exposed for tests.
double CgroupCpuQuota(const std::string& cgroup_file, const std::string& root);

}  // namespace mir::launch

#endif  // MIR_LAUNCH_CPUS_H_
