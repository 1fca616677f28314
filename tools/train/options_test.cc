#include "tools/train/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_split.h"
#include "mir/testing/status_matchers.h"

namespace mir::tools {
namespace {

using ::mir::testing::IsOk;
using ::mir::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using Kind = Processes::Kind;

RunnerOptions Parsed(const std::vector<std::string>& arguments) {
  const auto options = ParseRunnerOptions(arguments);
  EXPECT_THAT(options, IsOk());
  return options.ok() ? *options : RunnerOptions();
}

TEST(RunnerOptionsTest, NothingGiven) {
  const RunnerOptions options = Parsed({});
  EXPECT_EQ(options.model, "voxelmorph");
  EXPECT_EQ(options.processes.kind, Kind::kAllGpus);
  EXPECT_EQ(options.processes.as_given, "");
  EXPECT_EQ(options.grace, absl::Seconds(30));
  EXPECT_EQ(options.kill_wait, absl::Seconds(10));
  EXPECT_EQ(options.init_timeout, absl::Seconds(120));
  EXPECT_EQ(options.timeout, absl::InfiniteDuration());
  EXPECT_TRUE(options.console.Shows(0));
  EXPECT_FALSE(options.console.Shows(1));
  EXPECT_THAT(options.worker_arguments, IsEmpty());
}

TEST(RunnerOptionsTest, OwnOptionsAreTakenInBothForms) {
  const RunnerOptions options = Parsed({"--model=transmorph",
                                        "--cpu-procs",
                                        "2",
                                        "--out",
                                        "runs/a",
                                        "--threads=3",
                                        "--env",
                                        "A=1=2",
                                        "--env=B=",
                                        "--master-port",
                                        "1234",
                                        "--init-timeout",
                                        "5",
                                        "--timeout",
                                        "1.5h",
                                        "--grace=0",
                                        "--kill-wait",
                                        "1500ms",
                                        "--console",
                                        "all",
                                        "--timestamps",
                                        "--color",
                                        "never",
                                        "--isolate-gpus",
                                        "--ifname",
                                        "eth0",
                                        "--format",
                                        "json",
                                        "--junit=report.xml",
                                        "--dry-run",
                                        "--standalone"});
  EXPECT_EQ(options.model, "transmorph");
  EXPECT_EQ(options.processes.kind, Kind::kCpu);
  EXPECT_EQ(options.processes.count, 2);
  EXPECT_EQ(options.processes.as_given, "--cpu-procs 2");
  EXPECT_EQ(options.out, "runs/a");
  EXPECT_EQ(options.threads, 3);
  EXPECT_THAT(options.env, ElementsAre(Pair("A", "1=2"), Pair("B", "")));
  EXPECT_EQ(options.master_port, 1234);
  EXPECT_EQ(options.init_timeout, absl::Seconds(5));
  EXPECT_EQ(options.timeout, absl::Minutes(90));
  EXPECT_EQ(options.grace, absl::ZeroDuration());
  EXPECT_EQ(options.kill_wait, absl::Milliseconds(1500));
  EXPECT_TRUE(options.console.Shows(17));
  EXPECT_TRUE(options.timestamps);
  EXPECT_EQ(options.color, ColorMode::kNever);
  EXPECT_TRUE(options.isolate_gpus);
  EXPECT_EQ(options.interface, "eth0");
  EXPECT_EQ(options.format, OutputFormat::kJson);
  EXPECT_EQ(options.junit, "report.xml");
  EXPECT_TRUE(options.dry_run);
  EXPECT_THAT(options.worker_arguments, IsEmpty());
}

TEST(RunnerOptionsTest, UnderscoresAreDashes) {
  EXPECT_EQ(Parsed({"--cpu_procs", "3"}).processes.count, 3);
  EXPECT_EQ(Parsed({"--nproc_per_node=3"}).processes.count, 3);
}

TEST(RunnerOptionsTest, EverythingElseGoesToTheWorkerUnchanged) {
  const std::vector<std::string> rest = {
      "train",   "--precision", "bf16",        "--lr=1e-3", "-x",
      "",        "a b",         "--val_every", "-1",        "--set",
      "a=1;b=2", "--gpusx",     "--no-resume", "-",         "$HOME"};
  std::vector<std::string> arguments = rest;
  arguments.insert(arguments.begin() + 3, {"--cpu-procs", "2"});
  const RunnerOptions options = Parsed(arguments);
  EXPECT_EQ(options.worker_arguments, rest);
  EXPECT_EQ(options.processes.count, 2);
}

TEST(RunnerOptionsTest, AfterTwoDashesAllGoesToTheWorker) {
  const RunnerOptions options =
      Parsed({"--gpus", "1", "a", "--", "--gpus", "2", "--", "--help"});
  EXPECT_EQ(options.processes.count, 1);
  EXPECT_FALSE(options.help);
  EXPECT_THAT(options.worker_arguments,
              ElementsAre("a", "--gpus", "2", "--", "--help"));
}

TEST(RunnerOptionsTest, TheLastOneWins) {
  EXPECT_EQ(Parsed({"--out", "a", "--out", "b"}).out, "b");
}

TEST(RunnerOptionsTest, Processes) {
  EXPECT_EQ(Parsed({"--gpus", "all"}).processes.kind, Kind::kAllGpus);
  EXPECT_EQ(Parsed({"--gpus", "all"}).processes.as_given, "--gpus all");
  EXPECT_EQ(Parsed({"--gpus", "4"}).processes.kind, Kind::kGpus);
  EXPECT_EQ(Parsed({"--nproc-per-node", "gpu"}).processes.kind, Kind::kAllGpus);
  EXPECT_EQ(Parsed({"--nproc-per-node", "cpu"}).processes.kind, Kind::kAllCpus);
  EXPECT_EQ(Parsed({"--nproc-per-node", "auto"}).processes.kind,
            Kind::kGpuOrCpu);
  EXPECT_EQ(Parsed({"--nproc-per-node", "2"}).processes.kind, Kind::kEither);
}

TEST(RunnerOptionsTest, ConsoleRanks) {
  const ConsoleRanks some = Parsed({"--console", "0,2-3"}).console;
  EXPECT_TRUE(some.Shows(0));
  EXPECT_FALSE(some.Shows(1));
  EXPECT_TRUE(some.Shows(2));
  EXPECT_TRUE(some.Shows(3));
  EXPECT_FALSE(some.Shows(4));
  EXPECT_FALSE(Parsed({"--console", "none"}).console.Shows(0));
  EXPECT_TRUE(Parsed({"--console=rank0"}).console.Shows(0));
}

TEST(RunnerOptionsTest, WhatIsWrongIsNamed) {
  const struct {
    std::vector<std::string> arguments;
    std::string message;
  } kCases[] = {
      {{"--gpus"}, "--gpus wants a value: --gpus N|all"},
      {{"--gpus", "--cpu-procs", "2"}, "--gpus wants a value"},
      {{"--out="}, "--out wants a value"},
      {{"--gpus", "0"}, "--gpus 0: wants a number from 1 to 4096, or all"},
      {{"--gpus", "four"}, "--gpus four: wants"},
      {{"--cpu-procs", "-1"}, "--cpu-procs -1: wants a whole number"},
      {{"--nproc-per-node", "tpu"}, "gpu, cpu or auto"},
      {{"--gpus", "1", "--cpu-procs", "2"},
       "--cpu-procs 2: contradicts --gpus 1; give one of"},
      {{"--threads", "0"}, "--threads 0: wants a whole number from 1"},
      {{"--master-port", "70000"}, "from 0 to 65535"},
      {{"--env", "A"}, "--env A: wants NAME=VALUE"},
      {{"--env", "=1"}, "wants NAME=VALUE"},
      {{"--timeout", "soon"}, "--timeout soon: wants a time such as 90s"},
      {{"--timeout", "0"}, "--timeout 0: wants more than 0"},
      {{"--init-timeout", "0s"}, "--init-timeout 0s: wants more than 0"},
      {{"--grace", "-3"}, "--grace -3: wants a time"},
      {{"--kill-wait", "1x"}, "--kill-wait 1x: wants a time"},
      {{"--console", "rank1"}, "--console rank1: wants rank0, all, none"},
      {{"--console", "3-2"}, "--console 3-2: wants"},
      {{"--format", "xml"}, "--format xml: wants human or json"},
      {{"--color", "maybe"}, "--color maybe: wants auto, always or never"},
      {{"--dry-run=yes"}, "--dry-run takes no value, got --dry-run=yes"},
      {{"--model", "vit", "--worker", "x"}, "give one"},
      {{"--hang-timeout", "0"}, "--hang-timeout 0: wants more than 0"},
      {{"--max-restarts", "-1"}, "--max-restarts -1: wants a whole number"},
      {{"--restart-on", "fire"}, "signal, peer, preempt, hang, error"},
      {{"--nnodes", "1:4"}, "--nnodes 1:4: wants a fixed number"},
      {{"--nnodes", "2"}, "--nnodes wants --master-addr and --master-port"},
      {{"--nnodes", "2", "--rdzv-endpoint", "a:1"}, "--nnodes wants --out"},
      {{"--node-rank", "1"}, "--node-rank 1 is outside --nnodes 1"},
      {{"--rdzv-endpoint", "host"}, "wants HOST:PORT"},
      {{"--rdzv-backend", "c10d"}, "--rdzv-backend c10d: wants static"},
      {{"--bind", "gpu"}, "--bind gpu: wants none, cores or numa"},
      {{"--tee", "3"}, "--tee is torchrun's: --console all shows every rank"},
      {{"--log_dir=x"}, "--log_dir is torchrun's: logs are in the run's"},
  };
  for (const auto& test : kCases) {
    EXPECT_THAT(
        ParseRunnerOptions(test.arguments),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(test.message)));
  }
}

TEST(RunnerOptionsTest, Nodes) {
  const RunnerOptions options =
      Parsed({"--nnodes=2", "--node_rank=1", "--rdzv-endpoint", "a:29500",
              "--rdzv-id", "x", "--rdzv-backend=static", "--out", "run"});
  EXPECT_EQ(options.nodes, 2);
  EXPECT_EQ(options.node, 1);
  EXPECT_EQ(options.master_addr, "a");
  EXPECT_EQ(options.master_port, 29500);
  EXPECT_EQ(options.run_id, "x");
}

TEST(RunnerOptionsTest, Restarts) {
  const auto options = ParseRunnerOptions(
      {"--max-restarts=3", "--restart-on", "peer,error", "--no-python",
       "--hang-timeout", "2m", "--", "--tee"});
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->max_restarts, 3);
  EXPECT_EQ(*options->restart_on,
            (std::set<FailureKind>{FailureKind::kPeer, FailureKind::kError}));
  EXPECT_EQ(options->hang_timeout, absl::Minutes(2));
  EXPECT_EQ(options->worker_arguments, std::vector<std::string>{"--tee"});
  EXPECT_FALSE(ParseRunnerOptions({})->restart_on.has_value());
}

TEST(RunnerHelpTest, ListsEveryOptionWithin80Columns) {
  const std::string help = RunnerHelp();
  for (const char* name :
       {"--model NAME",     "--worker PATH",  "--gpus N|all",   "--cpu-procs N",
        "--nproc-per-node", "--standalone",   "--out DIR",      "--threads N",
        "--env NAME=VALUE", "--master-port",  "--init-timeout", "--timeout",
        "--grace",          "--kill-wait",    "--console",      "--timestamps",
        "--color",          "--dry-run",      "--help",         "--help-worker",
        "--hang-timeout",   "--max-restarts", "--restart-on",   "--format HOW",
        "--junit FILE",     "Exit codes"}) {
    EXPECT_THAT(help, HasSubstr(name));
  }
  for (const absl::string_view line : absl::StrSplit(help, '\n')) {
    EXPECT_LE(line.size(), 80) << line;
  }
}

}  // namespace
}  // namespace mir::tools
