#include "mir/launch/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mir/testing/status_matchers.h"

namespace mir::launch {
namespace {

using ::mir::testing::IsOk;
using ::mir::testing::StatusIs;
using ::testing::HasSubstr;

const Env kTorchrun = {
    {"RANK", "5"},
    {"WORLD_SIZE", "8"},
    {"LOCAL_RANK", "1"},
    {"LOCAL_WORLD_SIZE", "4"},
    {"GROUP_RANK", "1"},
    {"GROUP_WORLD_SIZE", "2"},
    {"MASTER_ADDR", "nodea"},
    {"MASTER_PORT", "29400"},
    {"TORCHELASTIC_USE_AGENT_STORE", "True"},
    {"TORCHELASTIC_RESTART_COUNT", "2"},
    {"TORCHELASTIC_MAX_RESTARTS", "3"},
};

const Env kSlurm = {
    {"SLURM_PROCID", "3"},
    {"SLURM_NTASKS", "5"},
    {"SLURM_STEP_NUM_TASKS", "5"},
    {"SLURM_LOCALID", "1"},
    {"SLURM_NODEID", "1"},
    {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
    {"SLURM_STEP_NODELIST", "gpu[007-008,11],login1"},
    {"SLURM_JOB_ID", "4711"},
    {"SLURM_STEP_ID", "0"},
};

const Env kOpenMpi = {
    {"OMPI_COMM_WORLD_RANK", "1"},
    {"OMPI_COMM_WORLD_SIZE", "2"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
    {"PMIX_NAMESPACE", "prterun-host-99@1"},
};

const Env kPmi = {
    {"PMI_RANK", "1"},
    {"PMI_SIZE", "3"},
    {"MPI_LOCALRANKID", "1"},
    {"MPI_LOCALNRANKS", "3"},
};

// `env` with variables changed; an empty value removes.
Env With(Env env, const std::vector<std::pair<std::string, std::string>>& set) {
  for (const auto& [name, value] : set) {
    env.erase(name);
    if (!value.empty()) env[name] = value;
  }
  return env;
}

TEST(WorldTest, NothingSetIsASingleProcess) {
  const auto world = WorldFromEnv({{"HOME", "/root"}});
  ASSERT_THAT(world, IsOk());
  EXPECT_FALSE(world->launched());
  EXPECT_EQ(world->rank, 0);
  EXPECT_EQ(world->size, 1);
}

TEST(WorldTest, AnEmptyVariableIsNotSet) {
  const auto world = WorldFromEnv({{"RANK", ""}, {"SLURM_PROCID", ""}});
  ASSERT_THAT(world, IsOk());
  EXPECT_FALSE(world->launched());
}

TEST(WorldTest, ReadsTorchrun) {
  const auto world = WorldFromEnv(kTorchrun);
  ASSERT_THAT(world, IsOk());
  EXPECT_TRUE(world->launched());
  EXPECT_EQ(world->launcher, "torchrun");
  EXPECT_EQ(world->rank, 5);
  EXPECT_EQ(world->size, 8);
  EXPECT_EQ(world->local_rank, 1);
  EXPECT_EQ(world->local_size, 4);
  EXPECT_EQ(world->master_addr, "nodea");
  EXPECT_EQ(world->master_port, 29400);
  EXPECT_TRUE(world->agent_store);
  EXPECT_EQ(world->store_fd, -1);
  EXPECT_EQ(world->init_timeout_seconds, 120);
  EXPECT_EQ(world->collective_timeout_seconds, 600);
}

TEST(WorldTest, ReadsWhatOurRunnerAdds) {
  const auto world =
      WorldFromEnv(With(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"},
                                    {"MIR_STORE_FD", "7"},
                                    {"MIR_GENERATION", "4"},
                                    {"MIR_INIT_TIMEOUT", "30"}}));
  ASSERT_THAT(world, IsOk());
  EXPECT_FALSE(world->agent_store);
  EXPECT_EQ(world->store_fd, 7);
  EXPECT_EQ(world->generation, "4");
  EXPECT_EQ(world->init_timeout_seconds, 30);
}

TEST(WorldTest, RestartCountIsAGenerationOnlyWhereAllRanksShareIt) {
  // Two machines, restarts allowed: each agent counts its own.
  EXPECT_EQ(WorldFromEnv(kTorchrun)->generation, "");
  EXPECT_EQ(WorldFromEnv(With(kTorchrun, {{"TORCHELASTIC_MAX_RESTARTS", "0"}}))
                ->generation,
            "2");
  EXPECT_EQ(WorldFromEnv(With(kTorchrun, {{"WORLD_SIZE", "4"}, {"RANK", "1"}}))
                ->generation,
            "2");
  EXPECT_EQ(WorldFromEnv(With(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", ""}}))
                ->generation,
            "0");
}

TEST(WorldTest, WithoutLocalSizeAllRanksAreHere) {
  const auto world = WorldFromEnv(With(kTorchrun, {{"LOCAL_WORLD_SIZE", ""}}));
  ASSERT_THAT(world, IsOk());
  EXPECT_EQ(world->local_size, 8);
}

TEST(WorldTest, TorchrunWinsOverSchedulers) {
  Env env = kTorchrun;
  env.insert(kSlurm.begin(), kSlurm.end());
  env.insert(kOpenMpi.begin(), kOpenMpi.end());
  const auto world = WorldFromEnv(env);
  ASSERT_THAT(world, IsOk());
  EXPECT_EQ(world->rank, 5);
}

TEST(WorldTest, ReadsSlurm) {
  const auto world = WorldFromEnv(kSlurm);
  ASSERT_THAT(world, IsOk());
  EXPECT_EQ(world->launcher, "slurm");
  EXPECT_EQ(world->rank, 3);
  EXPECT_EQ(world->size, 5);
  EXPECT_EQ(world->local_rank, 1);
  EXPECT_EQ(world->local_size, 2);
  EXPECT_EQ(world->master_addr, "gpu007");
  EXPECT_GE(world->master_port, 20000);
  EXPECT_LT(world->master_port, 32000);
}

TEST(WorldTest, SlurmPortDependsOnTheJob) {
  EXPECT_EQ(WorldFromEnv(kSlurm)->master_port,
            WorldFromEnv(
                With(kSlurm, {{"SLURM_PROCID", "2"}, {"SLURM_LOCALID", "0"}}))
                ->master_port);
  EXPECT_NE(
      WorldFromEnv(kSlurm)->master_port,
      WorldFromEnv(With(kSlurm, {{"SLURM_JOB_ID", "4712"}}))->master_port);
}

TEST(WorldTest, SlurmNodeListsGiveTheirFirstHost) {
  for (const auto& [list, host] :
       std::vector<std::pair<std::string, std::string>>{
           {"gpu7", "gpu7"},
           {"gpu7,gpu9", "gpu7"},
           {"gpu[3,5-7]", "gpu3"},
           {"r[1-2]n[03-04]x,other", "r1n03x"}}) {
    EXPECT_EQ(WorldFromEnv(With(kSlurm, {{"SLURM_STEP_NODELIST", list}}))
                  ->master_addr,
              host)
        << list;
  }
}

TEST(WorldTest, MasterVariablesWinOverTheScheduler) {
  const auto world = WorldFromEnv(
      With(kSlurm, {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "1234"}}));
  ASSERT_THAT(world, IsOk());
  EXPECT_EQ(world->master_addr, "10.0.0.1");
  EXPECT_EQ(world->master_port, 1234);
}

TEST(WorldTest, ReadsOpenMpi) {
  const auto world = WorldFromEnv(kOpenMpi);
  ASSERT_THAT(world, IsOk());
  EXPECT_EQ(world->launcher, "openmpi");
  EXPECT_EQ(world->rank, 1);
  EXPECT_EQ(world->size, 2);
  EXPECT_EQ(world->local_size, 2);
  EXPECT_EQ(world->master_addr, "127.0.0.1");
  EXPECT_GE(world->master_port, 20000);
}

TEST(WorldTest, ReadsPmi) {
  for (const Env& env : {kPmi, With(kPmi, {{"MPI_LOCALRANKID", ""},
                                           {"MPI_LOCALNRANKS", ""},
                                           {"PMI_LOCAL_RANK", "1"},
                                           {"PMI_LOCAL_SIZE", "3"}})}) {
    const auto world = WorldFromEnv(env);
    ASSERT_THAT(world, IsOk());
    EXPECT_EQ(world->launcher, "pmi");
    EXPECT_EQ(world->rank, 1);
    EXPECT_EQ(world->size, 3);
    EXPECT_EQ(world->local_size, 3);
    EXPECT_EQ(world->master_port, 29500);
  }
}

TEST(WorldTest, OneTaskIsASingleProcess) {
  for (const Env& env :
       {Env{{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}},
        Env{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}},
        Env{{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}}) {
    const auto world = WorldFromEnv(env);
    ASSERT_THAT(world, IsOk());
    EXPECT_FALSE(world->launched());
  }
}

TEST(WorldTest, ErrorsNameTheVariableAndTheRemedy) {
  const struct {
    Env env;
    std::vector<std::string> parts;
  } kCases[] = {
      {With(kTorchrun, {{"RANK", ""}}), {"RANK is not set", "torchrun"}},
      {{{"WORLD_SIZE", "2"}},
       {"RANK, LOCAL_RANK, MASTER_ADDR, MASTER_PORT are not set", "unset"}},
      {With(kTorchrun, {{"WORLD_SIZE", ""}}), {"WORLD_SIZE is not set"}},
      {With(kTorchrun, {{"LOCAL_RANK", ""}}), {"LOCAL_RANK is not set"}},
      {With(kTorchrun, {{"MASTER_ADDR", ""}, {"MASTER_PORT", ""}}),
       {"MASTER_ADDR, MASTER_PORT are not set", "//tools:train"}},
      {With(kTorchrun, {{"RANK", "8"}}), {"RANK=8", "WORLD_SIZE=8", "0 to 7"}},
      {With(kTorchrun, {{"RANK", "-1"}}), {"RANK=-1"}},
      {With(kTorchrun, {{"RANK", "two"}}), {"RANK=two", "whole number"}},
      {With(kTorchrun, {{"WORLD_SIZE", "0"}}), {"WORLD_SIZE=0"}},
      {With(kTorchrun, {{"LOCAL_RANK", "4"}}),
       {"LOCAL_RANK=4", "LOCAL_WORLD_SIZE=4"}},
      {With(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}),
       {"LOCAL_WORLD_SIZE=9", "WORLD_SIZE=8"}},
      {With(kTorchrun, {{"MASTER_PORT", "70000"}}),
       {"MASTER_PORT=70000", "65535"}},
      {With(kTorchrun, {{"MIR_STORE_FD", "x"}}), {"MIR_STORE_FD=x"}},
      {With(kTorchrun, {{"MIR_INIT_TIMEOUT", "0"}}), {"MIR_INIT_TIMEOUT=0"}},
      // srun started this process itself, and the user set another size.
      {With(kTorchrun, {{"SLURM_TASK_PID", absl::StrCat(getpid())},
                        {"SLURM_STEP_NUM_TASKS", "2"}}),
       {"WORLD_SIZE=8", "SLURM_STEP_NUM_TASKS=2", "unset"}},
      {With(kSlurm, {{"SLURM_LOCALID", ""}}),
       {"SLURM_LOCALID is not set", "srun"}},
      {With(kSlurm, {{"SLURM_LOCALID", "2"}}),
       {"SLURM_LOCALID=2", "2 tasks", "node 1"}},
      {With(kSlurm, {{"SLURM_STEP_NODELIST", ""}}),
       {"SLURM_STEP_NODELIST", "MASTER_ADDR"}},
      {With(kSlurm, {{"WORLD_SIZE", "4"}}),
       {"WORLD_SIZE=4", "SLURM_STEP_NUM_TASKS=5"}},
      // A batch script's own environment.
      {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}},
       {"8 tasks", "start it with srun", "unset SLURM_PROCID"}},
      {With(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", ""}}),
       {"OMPI_COMM_WORLD_SIZE is not set", "mpirun"}},
      {With(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                       {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}),
       {"MASTER_ADDR is not set", "mpirun -x"}},
      {With(kOpenMpi, {{"WORLD_SIZE", "3"}}),
       {"WORLD_SIZE=3", "OMPI_COMM_WORLD_SIZE=2"}},
      {With(kPmi, {{"MPI_LOCALRANKID", ""}}), {"MPI_LOCALRANKID is not set"}},
      {With(kPmi, {{"PMI_RANK", "3"}}), {"PMI_RANK=3", "PMI_SIZE=3"}},
  };
  for (const auto& test : kCases) {
    const absl::Status status = WorldFromEnv(test.env).status();
    for (const std::string& part : test.parts) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                   HasSubstr(part)));
    }
  }
}

TEST(WorldTest, SizesMayDifferUnderALauncherThatSrunStarted) {
  // One srun task per machine, torchrun in each.
  EXPECT_THAT(WorldFromEnv(With(kTorchrun, {{"SLURM_TASK_PID", "1"},
                                            {"SLURM_STEP_NUM_TASKS", "2"}})),
              IsOk());
}

}  // namespace
}  // namespace mir::launch
