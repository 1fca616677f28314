#include "mir/launch/cpus.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace mir::launch {
namespace {

// A folder that looks like /sys/fs/cgroup.
class Cgroups {
 public:
  explicit Cgroups(const std::string& name)
      : root_(::testing::TempDir() + "/" + name) {
    std::filesystem::remove_all(root_);
  }
  void Write(const std::string& path, const std::string& text) {
    const std::string whole = root_ + "/" + path;
    std::filesystem::create_directories(
        std::filesystem::path(whole).parent_path());
    std::ofstream(whole) << text << "\n";
  }
  double Quota() const { return CgroupCpuQuota(root_ + "/self", root_); }

 private:
  std::string root_;
};

TEST(CpusTest, AffinityCounts) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_GE(AllowedCpus(), 1);
  EXPECT_LE(AllowedCpus(), CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(AllowedCpus(), 1);
  sched_setaffinity(0, sizeof(before), &before);
}

TEST(CpusTest, NoFilesMeanNoQuota) {
  EXPECT_EQ(CgroupCpuQuota("/nonexistent", "/nonexistent"), 0);
}

TEST(CpusTest, Version2TakesTheTightestLevel) {
  Cgroups groups("v2");
  groups.Write("self", "0::/job/step");
  EXPECT_EQ(groups.Quota(), 0);
  groups.Write("job/step/cpu.max", "max 100000");
  EXPECT_EQ(groups.Quota(), 0);
  groups.Write("job/cpu.max", "250000 100000");
  EXPECT_EQ(groups.Quota(), 2.5);
  groups.Write("job/step/cpu.max", "400000 100000");
  EXPECT_EQ(groups.Quota(), 2.5);
  groups.Write("cpu.max", "150000 100000");
  EXPECT_EQ(groups.Quota(), 1.5);
}

TEST(CpusTest, Version1HasAFolderPerController) {
  Cgroups groups("v1");
  groups.Write("self", "5:memory:/m\n4:cpu,cpuacct:/docker/x");
  groups.Write("cpu,cpuacct/docker/x/cpu.cfs_quota_us", "-1");
  groups.Write("cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000");
  EXPECT_EQ(groups.Quota(), 0);
  groups.Write("cpu,cpuacct/docker/x/cpu.cfs_quota_us", "300000");
  EXPECT_EQ(groups.Quota(), 3);
}

}  // namespace
}  // namespace mir::launch
