#include "tools/train/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "mir/launch/world.h"
#include "mir/testing/status_matchers.h"

namespace mir::tools {
namespace {

using ::mir::testing::IsOk;
using ::mir::testing::StatusIs;
using ::testing::ElementsAre;
using Kind = Processes::Kind;

absl::StatusOr<Placement> PlaceWith(const Processes& processes, int gpus) {
  return Place(
      processes,
      [&] {
        CudaDevices devices;
        devices.names.assign(gpus, "GPU");
        if (gpus == 0) devices.why_none = "libcuda.so.1 not found";
        return devices;
      },
      /*allowed_cpus=*/8);
}

TEST(PlaceTest, CpuProcessesDoNotAskForGpus) {
  const auto never = [] {
    ADD_FAILURE() << "asked";
    return CudaDevices();
  };
  const auto placement = Place({Kind::kCpu, 3, "--cpu-procs 3"}, never, 8);
  ASSERT_THAT(placement, IsOk());
  EXPECT_EQ(placement->processes, 3);
  EXPECT_FALSE(placement->cuda);
  EXPECT_EQ(
      Place({Kind::kAllCpus, 0, "--nproc-per-node cpu"}, never, 8)->processes,
      8);
}

TEST(PlaceTest, GpusWhereThereAreEnough) {
  for (const auto& [processes, wanted] : std::vector<std::pair<Processes, int>>{
           {{Kind::kAllGpus, 0, ""}, 4},
           {{Kind::kAllGpus, 0, "--gpus all"}, 4},
           {{Kind::kGpus, 2, "--gpus 2"}, 2},
           {{Kind::kEither, 3, "--nproc-per-node 3"}, 3},
           {{Kind::kGpuOrCpu, 0, "--nproc-per-node auto"}, 4}}) {
    const auto placement = PlaceWith(processes, 4);
    ASSERT_THAT(placement, IsOk());
    EXPECT_TRUE(placement->cuda);
    EXPECT_EQ(placement->processes, wanted) << processes.as_given;
  }
}

TEST(PlaceTest, WithoutGpusSomeFallBackToTheCpu) {
  EXPECT_EQ(PlaceWith({Kind::kEither, 3, "--nproc-per-node 3"}, 0)->processes,
            3);
  EXPECT_FALSE(PlaceWith({Kind::kEither, 3, "--nproc-per-node 3"}, 0)->cuda);
  EXPECT_EQ(
      PlaceWith({Kind::kGpuOrCpu, 0, "--nproc-per-node auto"}, 0)->processes,
      8);
}

TEST(PlaceTest, ErrorsSayWhatToDo) {
  EXPECT_THAT(
      PlaceWith({Kind::kGpus, 4, "--gpus 4"}, 0),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               "--gpus 4, but 0 CUDA devices are visible (libcuda.so.1 not "
               "found)\nhelp: use --cpu-procs 4 to run the same program on the "
               "CPU with gloo"));
  EXPECT_THAT(
      PlaceWith({}, 0),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               "without --cpu-procs every GPU gets a process, but 0 CUDA "
               "devices are visible (libcuda.so.1 not found)\nhelp: use "
               "--cpu-procs 2 to run the same program on the CPU with gloo"));
  EXPECT_THAT(
      PlaceWith({Kind::kGpus, 4, "--gpus 4"}, 2),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               "--gpus 4, but only 2 CUDA devices are visible (0: GPU, 1: "
               "GPU)\nhelp: use --gpus 2, or let CUDA_VISIBLE_DEVICES name "
               "more"));
}

Plan SomePlan() {
  Plan plan;
  plan.worker = "bin/train";
  plan.placement = {2, false};
  plan.threads = 3;
  plan.run_id = "id";
  plan.run_folder = "runs/id";
  plan.attempt_folder = "/x/runs/id/attempt-1";
  plan.generation = 1;
  plan.master_port = 1234;
  plan.init_timeout_seconds = 60;
  plan.collective_timeout_seconds = 90;
  return plan;
}

TEST(PlanTest, OurWorkersGetDeviceAndFolderFirst) {
  Plan plan = SomePlan();
  plan.keeps_contract = true;
  EXPECT_THAT(
      WorkerCommandLine(plan, {"--lr", "1"}, /*out_given=*/false),
      ElementsAre("bin/train", "--device=cpu", "--out=runs/id", "--lr", "1"));
  plan.placement.cuda = true;
  EXPECT_EQ(WorkerCommandLine(plan, {}, true)[1], "--device=cuda");
}

TEST(PlanTest, OtherProgramsGetTheirArgumentsAndTheFolderThatWasGiven) {
  EXPECT_THAT(WorkerCommandLine(SomePlan(), {"a.py", "x"}, false),
              ElementsAre("bin/train", "a.py", "x"));
  EXPECT_THAT(WorkerCommandLine(SomePlan(), {"a.py", "x"}, true),
              ElementsAre("bin/train", "a.py", "x", "--out", "runs/id"));
}

TEST(PlanTest, RanksGetTorchrunsContract) {
  const launch::Env common = CommonEnv(SomePlan(), {}, {{"HOME", "/h"}});
  const launch::Env env = RankEnv(SomePlan(), 1, common);
  const launch::Env wanted = {
      {"CUDA_VISIBLE_DEVICES", ""},
      {"GROUP_RANK", "0"},
      {"GROUP_WORLD_SIZE", "1"},
      {"HOME", "/h"},
      {"LOCAL_RANK", "1"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", "1234"},
      {"MIR_COLLECTIVE_TIMEOUT", "90"},
      {"MIR_GENERATION", "1"},
      {"MIR_INIT_TIMEOUT", "70"},
      {"OMP_NUM_THREADS", "3"},
      {"RANK", "1"},
      {"ROLE_NAME", "default"},
      {"ROLE_RANK", "1"},
      {"ROLE_WORLD_SIZE", "2"},
      {"TORCHELASTIC_ERROR_FILE", "/x/runs/id/attempt-1/rank-00001/error.json"},
      {"TORCHELASTIC_MAX_RESTARTS", "0"},
      {"TORCHELASTIC_RESTART_COUNT", "0"},
      {"TORCHELASTIC_RUN_ID", "id"},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      {"WORLD_SIZE", "2"},
  };
  EXPECT_EQ(env, wanted);

  const auto world = launch::WorldFromEnv(env);
  ASSERT_THAT(world, IsOk());
  EXPECT_EQ(world->rank, 1);
  EXPECT_EQ(world->local_size, 2);
  EXPECT_EQ(world->generation, "1");
  EXPECT_EQ(world->collective_timeout_seconds, 90);
  EXPECT_FALSE(world->agent_store);
}

TEST(PlanTest, RanksOfASecondNode) {
  Plan plan = SomePlan();
  plan.node = 1;
  plan.nodes = 2;
  plan.first_rank = 3;
  plan.world = 5;
  plan.master_addr = "nodea";
  const launch::Env env = RankEnv(plan, 1, {});
  for (const auto& [name, value] :
       launch::Env{{"RANK", "4"},
                   {"LOCAL_RANK", "1"},
                   {"WORLD_SIZE", "5"},
                   {"LOCAL_WORLD_SIZE", "2"},
                   {"GROUP_RANK", "1"},
                   {"GROUP_WORLD_SIZE", "2"},
                   {"MASTER_ADDR", "nodea"},
                   {"TORCHELASTIC_ERROR_FILE",
                    "/x/runs/id/attempt-1/rank-00004/error.json"}}) {
    EXPECT_EQ(env.at(name), value) << name;
  }
  EXPECT_THAT(launch::WorldFromEnv(env), IsOk());
}

TEST(PlanTest, ARestartGoesOn) {
  Plan plan = SomePlan();
  plan.keeps_contract = plan.resume = true;
  plan.restarts = 2;
  plan.max_restarts = 3;
  const std::vector<std::string> line =
      WorkerCommandLine(plan, {"--lr", "1"}, /*out_given=*/false);
  EXPECT_EQ(line[3], "--resume");
  EXPECT_EQ(WorkerCommandLine(plan, {"--resume"}, false).size(), 4);
  const launch::Env env = RankEnv(plan, 0, {});
  EXPECT_EQ(env.at("TORCHELASTIC_RESTART_COUNT"), "2");
  EXPECT_EQ(env.at("TORCHELASTIC_MAX_RESTARTS"), "3");
  plan.keeps_contract = false;
  EXPECT_EQ(WorkerCommandLine(plan, {}, false).size(), 1);
}

TEST(PlanTest, AnotherLaunchersPlaceIsForgotten) {
  const launch::Env outer = {{"RANK", "3"},          {"SLURM_PROCID", "1"},
                             {"MIR_STATUS_FD", "5"}, {"RUNFILES_DIR", "/r"},
                             {"MASTER_PORT", "1"},   {"SLURM_JOB_ID", "9"}};
  Plan plan = SomePlan();
  plan.placement.cuda = true;
  const launch::Env common = CommonEnv(plan, {}, outer);
  EXPECT_EQ(common,
            (launch::Env{{"OMP_NUM_THREADS", "3"}, {"SLURM_JOB_ID", "9"}}));
}

TEST(PlanTest, TheUsersVariablesWin) {
  RunnerOptions options;
  options.env = {{"CUDA_VISIBLE_DEVICES", "1"}, {"A", "b"}};
  const launch::Env common = CommonEnv(SomePlan(), options, {{"A", "a"}});
  EXPECT_EQ(common.at("CUDA_VISIBLE_DEVICES"), "1");
  EXPECT_EQ(common.at("A"), "b");
}

TEST(PlanTest, AProcessMaySeeItsOwnGpuAlone) {
  Plan plan = SomePlan();
  plan.placement.cuda = true;
  EXPECT_EQ(RankEnv(plan, 1, {}).count("CUDA_VISIBLE_DEVICES"), 0);
  plan.isolate_gpus = true;
  EXPECT_EQ(RankEnv(plan, 1, {}).at("CUDA_VISIBLE_DEVICES"), "1");
  const launch::Env some = {{"CUDA_VISIBLE_DEVICES", "4,GPU-ab"}};
  EXPECT_EQ(RankEnv(plan, 0, some).at("CUDA_VISIBLE_DEVICES"), "4");
  EXPECT_EQ(RankEnv(plan, 1, some).at("CUDA_VISIBLE_DEVICES"), "GPU-ab");
  plan.placement.cuda = false;
  EXPECT_EQ(RankEnv(plan, 1, some).at("CUDA_VISIBLE_DEVICES"), "4,GPU-ab");
}

TEST(PlanTest, ANetworkInterfaceIsForBothBackends) {
  RunnerOptions options;
  options.interface = "eth1";
  const launch::Env common = CommonEnv(SomePlan(), options, {});
  EXPECT_EQ(common.at("GLOO_SOCKET_IFNAME"), "eth1");
  EXPECT_EQ(common.at("NCCL_SOCKET_IFNAME"), "eth1");
  EXPECT_EQ(CommonEnv(SomePlan(), {}, {}).count("GLOO_SOCKET_IFNAME"), 0);
}

TEST(PlanTest, Threads) {
  RunnerOptions options;
  EXPECT_EQ(ThreadsOf(options, {}, 3, 8), 2);
  EXPECT_EQ(ThreadsOf(options, {}, 9, 8), 1);
  EXPECT_EQ(ThreadsOf(options, {{"OMP_NUM_THREADS", "5"}}, 3, 8), 5);
  options.threads = 4;
  EXPECT_EQ(ThreadsOf(options, {{"OMP_NUM_THREADS", "5"}}, 3, 8), 4);
}

}  // namespace
}  // namespace mir::tools
