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

TEST(CpuBindingTest, ListsAreParsed) {
  EXPECT_EQ(ParseCpuList("0-2,8"), (std::vector<int>{0, 1, 2, 8}));
  EXPECT_EQ(ParseCpuList(""), std::vector<int>());
  EXPECT_EQ(AllowedCpuNumbers().empty(), false);
}

TEST(CpuBindingTest, NumaNodesAreRead) {
  const std::string root = ::testing::TempDir() + "/numa";
  for (const auto& [node, cpus] :
       {std::make_pair("node0", "0-1"), std::make_pair("node1", "2-3")}) {
    std::filesystem::create_directories(root + "/" + node);
    std::ofstream(root + "/" + node + "/cpulist") << cpus << "\n";
  }
  std::ofstream(root + "/online") << "0-1\n";
  EXPECT_EQ(NumaNodes(root), (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
  EXPECT_EQ(NumaNodes(root + "/no"), std::vector<std::vector<int>>(1));
}

TEST(CpuBindingTest, EachProcessGetsItsShare) {
  const std::vector<int> allowed = {1, 2, 3, 5};
  const std::vector<std::vector<int>> numa = {{0, 1, 2}, {3, 4, 5}};
  const auto cpus = [&](CpuBinding binding, int local, int processes) {
    return CpusOf(binding, local, processes, allowed, numa);
  };
  EXPECT_TRUE(cpus(CpuBinding::kNone, 0, 2).empty());
  EXPECT_EQ(cpus(CpuBinding::kCores, 1, 2), (std::vector<int>{3, 5}));
  EXPECT_EQ(cpus(CpuBinding::kCores, 2, 3), (std::vector<int>{3}));
  EXPECT_EQ(cpus(CpuBinding::kCores, 5, 8), (std::vector<int>{2}));
  EXPECT_EQ(cpus(CpuBinding::kNuma, 0, 2), (std::vector<int>{1, 2}));
  EXPECT_EQ(cpus(CpuBinding::kNuma, 3, 4), (std::vector<int>{3, 5}));
  EXPECT_TRUE(CpusOf(CpuBinding::kNuma, 0, 1, allowed, {{}}).empty());
}

}  // namespace
}  // namespace mir::launch
