// The runner as a user meets it: the program, with workers that are real
// processes but hold no model.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "mir/launch/cpus.h"
#include "mir/launch/env.h"
#include "mir/launch/exit_codes.h"
#include "mir/launch/reserved_port.h"
#include "mir/launch/spawn.h"

namespace mir::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

const std::string& StartFolder() {
  static const auto& folder = *new std::string(fs::current_path());
  return folder;
}

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Whether the process is gone, or dead and only not waited for.
bool IsGone(pid_t pid) {
  const std::string stat = Contents(absl::StrCat("/proc/", pid, "/stat"));
  const size_t end = stat.rfind(')');
  return end == std::string::npos || stat.substr(end + 2, 1) == "Z";
}

template <typename Condition>
bool Within(absl::Duration patience, const Condition& condition) {
  const absl::Time until = absl::Now() + patience;
  while (!condition()) {
    if (absl::Now() > until) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

// The number after the first `label` in `text`, or -1.
int NumberAfter(absl::string_view text, absl::string_view label) {
  const size_t at = text.find(label);
  if (at == absl::string_view::npos) return -1;
  text.remove_prefix(at + label.size());
  int number = -1;
  absl::string_view digits = text.substr(
      0, std::min(text.find_first_not_of("0123456789"), text.size()));
  return absl::SimpleAtoi(digits, &number) ? number : -1;
}

// Each test runs in a new folder.
class TrainTest : public ::testing::Test {
 protected:
  void SetUp() override {
    StartFolder();
    folder_ = fs::canonical(::testing::TempDir()) /
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    fs::current_path(folder_);
    env_ = {{"PATH", "/usr/bin:/bin"}, {"TMPDIR", ::testing::TempDir()}};
  }
  void TearDown() override {
    if (runner_ > 0) {
      kill(runner_, SIGKILL);
      waitpid(runner_, nullptr, 0);
    }
    fs::current_path(StartFolder());
  }

  static std::string Built(const std::string& name) {
    return absl::StrCat(StartFolder(), "/tools/train/", name);
  }

  // A shell script as a program. Its first line lets the runner take it for one
  // of our own workers where `ours`.
  static std::string Script(const std::string& body, bool ours = false) {
    const std::string path = "worker.sh";
    std::ofstream(path) << "#!/bin/sh\n"
                        << (ours ? "# mir-worker-contract-1\n" : "") << body
                        << "\n";
    chmod(path.c_str(), 0755);
    return path;
  }

  void Start(const std::vector<std::string>& arguments) {
    launch::Command command;
    command.argv = arguments;
    command.argv.insert(command.argv.begin(), Built("train"));
    command.env = env_;
    const launch::UniqueFd out(open("out", O_WRONLY | O_CREAT | O_TRUNC, 0600));
    const launch::UniqueFd err(open("err", O_WRONLY | O_CREAT | O_TRUNC, 0600));
    command.stdout_fd = out.get();
    command.stderr_fd = err.get();
    const auto pid = launch::Spawn(command);
    ASSERT_TRUE(pid.ok()) << pid.status();
    runner_ = *pid;
  }
  int Wait() {
    int status = 0;
    EXPECT_EQ(waitpid(runner_, &status, 0), runner_);
    runner_ = 0;
    return launch::ExitCodeOfWaitStatus(status);
  }
  int Run(const std::vector<std::string>& arguments) {
    Start(arguments);
    return Wait();
  }
  // Run with the worker that keeps the contract.
  std::vector<std::string> Fake(std::vector<std::string> arguments,
                                int processes = 2) {
    arguments.insert(arguments.begin(), {"--worker", Built("fake_worker"),
                                         "--cpu-procs", absl::StrCat(processes),
                                         "--console", "all", "--out", "run"});
    return arguments;
  }
  bool Shows(const std::string& text) {
    return Within(absl::Seconds(10),
                  [&] { return absl::StrContains(Out(), text); });
  }
  void WaitUntilReady(int processes = 2) {
    for (int rank = 0; rank < processes; ++rank) {
      ASSERT_TRUE(Shows(absl::StrCat("[r", rank, "] ready"))) << Out() << Err();
    }
  }

  static std::string Out() { return Contents("out"); }
  static std::string Err() { return Contents("err"); }
  static std::string Log(int rank, const std::string& name,
                         const std::string& run = "run", int attempt = 0) {
    return Contents(
        absl::StrCat(run, "/attempt-", attempt, "/rank-0000", rank, "/", name));
  }
  // The events of a run that have this name.
  static std::vector<nlohmann::json> Events(const std::string& name) {
    std::vector<nlohmann::json> events;
    std::ifstream file("run/events.jsonl");
    for (std::string line; std::getline(file, line);) {
      nlohmann::json event = nlohmann::json::parse(line);
      if (event["event"] == name) events.push_back(std::move(event));
    }
    return events;
  }
  static std::vector<std::string> States() {
    std::vector<std::string> states;
    for (const auto& event : Events("state")) states.push_back(event["state"]);
    return states;
  }

  std::string folder_;
  launch::Env env_;
  pid_t runner_ = 0;
};

// ---------------------------------------------------------------------------
// A run that goes well.

TEST_F(TrainTest, WorkersGetTheirPlaceTheirArgumentsAndTheirLogs) {
  env_["FROM_OUTSIDE"] = "kept";
  const std::string worker = Script(
      "echo \"$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR "
      "$OMP_NUM_THREADS [$CUDA_VISIBLE_DEVICES] $FROM_OUTSIDE $FROM_OPTION "
      "$*\"\n"
      "echo problem >&2");
  ASSERT_EQ(Run({"--precision", "bf16", "--cpu-procs", "2", "--threads", "3",
                 "--env", "FROM_OPTION=a b", "--worker", worker, "--x=y z"}),
            0)
      << Err();
  const std::string rest =
      "/2 127.0.0.1 3 [] kept a b --precision bf16 --x=y z\n";
  EXPECT_EQ(Out(), "[r0] 0/2 0" + rest);
  const std::string run = "runs/" + fs::read_symlink("runs/latest").string();
  EXPECT_EQ(Log(0, "stdout.log", run), "0/2 0" + rest);
  EXPECT_EQ(Log(1, "stdout.log", run), "1/2 1" + rest);
  EXPECT_EQ(Log(1, "stderr.log", run), "problem\n");
  EXPECT_THAT(Err(),
              HasSubstr("     Running 2 processes on the CPU, 3 threads each; "
                        "logs in runs/"));
  EXPECT_THAT(Err(), HasSubstr("[r0] problem\n"));
  EXPECT_THAT(Err(), HasSubstr("    Finished 2 processes in "));
  EXPECT_THAT(Err(), Not(HasSubstr("\033")));
}

TEST_F(TrainTest, ProcessesMayBeBoundToCpus) {
  const std::vector<int> allowed = launch::AllowedCpuNumbers();
  const std::string worker =
      Script("grep Cpus_allowed_list /proc/self/status | cut -f2");
  ASSERT_EQ(
      Run({"--worker", worker, "--cpu-procs", absl::StrCat(allowed.size()),
           "--bind", "cores", "--out", "run"}),
      0)
      << Err();
  for (size_t rank = 0; rank < std::min<size_t>(allowed.size(), 10); ++rank) {
    EXPECT_EQ(Log(rank, "stdout.log"), absl::StrCat(allowed[rank], "\n"));
  }
  ASSERT_EQ(Run({"--worker", worker, "--cpu-procs", "1", "--bind", "numa",
                 "--out", "numa"}),
            0)
      << Err();
}

TEST_F(TrainTest, OurWorkersGetDeviceFolderAndTheSocketOfTheStore) {
  const std::string worker = Script(
      "case \"$*\" in *--check-args*) exit 0;; esac\n"
      "echo \"$*\"\n"
      "[ -n \"$MIR_STORE_FD\" ] && readlink /proc/self/fd/$MIR_STORE_FD\n"
      "grep -i \": 0100007F:$(printf %04X $MASTER_PORT) .* 0A \" /proc/net/tcp "
      ">/dev/null && echo listening\n"
      "exit 0",
      /*ours=*/true);
  ASSERT_EQ(Run({"--worker", worker, "--cpu-procs", "2", "--lr", "1", "--out",
                 "run"}),
            0)
      << Err();
  EXPECT_THAT(Log(0, "stdout.log"),
              StartsWith("--device=cpu --out=run --lr 1\nsocket:["));
  EXPECT_THAT(Log(0, "stdout.log"), HasSubstr("listening\n"));
  EXPECT_THAT(Log(1, "stdout.log"),
              StartsWith("--device=cpu --out=run --lr 1\n"));
  EXPECT_THAT(Log(1, "stdout.log"), Not(HasSubstr("socket:[")));
}

TEST_F(TrainTest, OtherProgramsAreAskedNothingAndGetNoSocket) {
  const std::string worker = Script("echo \"[$MIR_STORE_FD] $*\"; exit 0");
  ASSERT_EQ(Run({"--worker", worker, "--cpu-procs", "1", "a", "--out", "run"}),
            0);
  EXPECT_EQ(Log(0, "stdout.log"), "[] a --out run\n");
}

TEST_F(TrainTest, PathsAreMeantFromWhereBazelWasCalled) {
  fs::create_directories("sub");
  const std::string worker = fs::absolute(Script("pwd"));
  env_["BUILD_WORKING_DIRECTORY"] = folder_ + "/sub";
  ASSERT_EQ(
      Run({"--worker", "../worker.sh", "--cpu-procs", "1", "--out", "run"}), 0);
  EXPECT_EQ(Log(0, "stdout.log", "sub/run"), folder_ + "/sub\n");
}

TEST_F(TrainTest, ResumingGoesOnInTheLatestRun) {
  const std::string worker = Script("echo \"$*\"", /*ours=*/true);
  ASSERT_EQ(Run({"--worker", worker, "--cpu-procs", "1"}), 0) << Err();
  const std::string run = "runs/" + fs::read_symlink("runs/latest").string();
  ASSERT_EQ(Run({"--worker", worker, "--cpu-procs", "1", "--resume"}), 0);
  EXPECT_EQ(Contents(run + "/attempt-1/rank-00000/stdout.log"),
            "--device=cpu --out=" + run + " --resume\n");
  EXPECT_EQ("runs/" + fs::read_symlink("runs/latest").string(), run);
}

// ---------------------------------------------------------------------------
// Output.

TEST_F(TrainTest, FloodsKeepTheirBytesAndTheirLines) {
  const std::string worker = Script(
      "awk -v r=$RANK 'BEGIN { for (i = 0; i < 100000; ++i) print \"line \" i "
      "\" of \" r }'");
  ASSERT_EQ(Run({"--worker", worker, "--cpu-procs", "4", "--console", "all",
                 "--out", "run"}),
            0);
  std::string expected[4];
  std::string shown[4];
  for (int rank = 0; rank < 4; ++rank) {
    for (int i = 0; i < 100000; ++i) {
      absl::StrAppend(&expected[rank], "line ", i, " of ", rank, "\n");
    }
    EXPECT_TRUE(Log(rank, "stdout.log") == expected[rank]) << rank;
  }
  const std::string out = Out();
  for (absl::string_view line : absl::StrSplit(out, '\n')) {
    if (line.empty()) continue;
    ASSERT_TRUE(line.size() > 5 && line.substr(0, 2) == "[r") << line;
    const int rank = line[2] - '0';
    ASSERT_TRUE(rank >= 0 && rank < 4) << line;
    absl::StrAppend(&shown[rank], line.substr(5), "\n");
  }
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(shown[rank] == expected[rank]) << rank;
  }
}

TEST_F(TrainTest, OddOutputComesThrough) {
  const std::string worker =
      Script("printf 'a\\377\\000b\\n10 %%\\r20 %%\\r\\nlast'");
  ASSERT_EQ(Run({"--worker", worker, "--cpu-procs", "1", "--out", "run"}), 0);
  EXPECT_EQ(Log(0, "stdout.log"),
            std::string("a\xff\0b", 4) + "\n10 %\r20 %\r\nlast");
  EXPECT_EQ(Out(),
            std::string("[r0] a\xff\0b", 9) + "\n[r0] 20 %\n[r0] last\n");
}

TEST_F(TrainTest, TheRunGoesOnWhenNobodyReads) {
  launch::Command command;
  command.argv = {"/bin/sh", "-c",
                  absl::StrCat("{ ", Built("train"),
                               " --worker ./worker.sh --cpu-procs 1 --out run; "
                               "echo code $? >&2; } | head -n 1")};
  command.env = env_;
  Script("for i in 1 2 3 4 5; do echo $i; sleep 0.1; done");
  const auto captured = launch::RunAndCapture(command);
  ASSERT_TRUE(captured.ok());
  EXPECT_THAT(captured->output, HasSubstr("[r0] 1\n"));
  EXPECT_THAT(captured->output, Not(HasSubstr("[r0] 5\n")));
  EXPECT_THAT(captured->output,
              HasSubstr("warning: nobody reads the output any more; the run "
                        "goes on, its logs are in run/attempt-0\n"));
  EXPECT_THAT(captured->output, HasSubstr("code 0\n"));
  EXPECT_EQ(Log(0, "stdout.log"), "1\n2\n3\n4\n5\n");
}

TEST_F(TrainTest, ClosedDescriptorsDoNoHarm) {
  launch::Command command;
  Script("echo hello");
  command.argv = {"/bin/sh", "-c",
                  absl::StrCat(Built("train"),
                               " --worker ./worker.sh --cpu-procs 2 --out run "
                               "<&- >&- 2>&-")};
  command.env = env_;
  const auto captured = launch::RunAndCapture(command);
  ASSERT_TRUE(captured.ok());
  EXPECT_EQ(captured->wait_status, 0);
  EXPECT_EQ(Log(1, "stdout.log"), "hello\n");
}

TEST_F(TrainTest, SignalsThatItsParentIgnoresDoNoHarm) {
  launch::Command command;
  Script("exit 10");
  command.argv = {"/bin/sh", "-c",
                  absl::StrCat("trap '' CHLD PIPE; exec ", Built("train"),
                               " --worker ./worker.sh --cpu-procs 2")};
  command.env = env_;
  const auto captured = launch::RunAndCapture(command);
  ASSERT_TRUE(captured.ok());
  EXPECT_EQ(launch::ExitCodeOfWaitStatus(captured->wait_status), launch::kData);
}

TEST_F(TrainTest, TheFirstWorkerStartsAtOnce) {
  Script("date +%s%N");
  const int64_t before = absl::ToUnixNanos(absl::Now());
  ASSERT_EQ(
      Run({"--worker", "./worker.sh", "--cpu-procs", "1", "--out", "run"}), 0);
  int64_t started = 0;
  ASSERT_TRUE(absl::SimpleAtoi(Log(0, "stdout.log"), &started));
  // A few milliseconds; ten times what is promised, for a busy machine.
  EXPECT_LT(started - before, int64_t{500'000'000});
}

// ---------------------------------------------------------------------------
// Failures.

TEST_F(TrainTest, TheFirstFailureIsNamedWithWhatItSaid) {
  const std::string worker = Script(
      "[ $RANK = 2 ] || exec sleep 100\n"
      "for i in $(seq 1 30); do echo \"line $i\" >&2; done; exit 11");
  EXPECT_EQ(Run({"--worker", worker, "--cpu-procs", "4", "--out", "run"}), 11);
  EXPECT_THAT(Err(), HasSubstr("      Failed rank 2: exited with code 11 (a "
                               "loss that is not finite) after "));
  EXPECT_THAT(Err(),
              HasSubstr("    Stopping ranks 0-1, 3: up to 30.0s to end"));
  EXPECT_THAT(Err(), HasSubstr("error: rank 2 exited with code 11"));
  EXPECT_THAT(Err(),
              HasSubstr("  then ranks 0-1, 3 were stopped by the runner\n"));
  EXPECT_THAT(Err(), AllOf(HasSubstr("  | line 11\n"), HasSubstr("| line 30\n"),
                           Not(HasSubstr("| line 10\n"))));
  EXPECT_THAT(Err(), HasSubstr("  its logs: run/attempt-0/rank-00002\n"));
}

TEST_F(TrainTest, TheErrorFileSaysWhy) {
  EXPECT_EQ(Run(Fake({"--steps=100", "--fail-at-2:1"})), launch::kNumeric);
  EXPECT_THAT(Err(), HasSubstr("at step 2: the loss is not finite\n"));
  EXPECT_THAT(Log(1, "error.json"), HasSubstr("the loss is not finite"));
}

TEST_F(TrainTest, EventsAndLinesComeAsJsonToo) {
  const std::string worker = Script("printf 'a \"b\" \\377\\n'; echo two >&2");
  ASSERT_EQ(Run({"--worker", worker, "--cpu-procs", "2", "--out", "run",
                 "--console", "all", "--format", "json"}),
            0)
      << Err();
  std::vector<std::string> names;
  std::vector<std::string> said;
  std::istringstream lines(Out());
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json event = nlohmann::json::parse(line);
    names.push_back(event["event"]);
    if (names.back() != "output") continue;
    said.push_back(absl::StrCat(event["rank"].get<int>(), " ",
                                event["stream"].get<std::string>(), " ",
                                event["text"].get<std::string>()));
  }
  EXPECT_THAT(said, ::testing::UnorderedElementsAre(
                        "0 stdout a \"b\" \xef\xbf\xbd", "0 stderr two",
                        "1 stdout a \"b\" \xef\xbf\xbd", "1 stderr two"));
  EXPECT_EQ(names.front(), "attempt");
  EXPECT_THAT(names, ::testing::IsSupersetOf({"started", "ended", "done"}));
  EXPECT_THAT(Err(),
              AllOf(HasSubstr("Finished 2 processes"), Not(HasSubstr("two"))));
}

TEST_F(TrainTest, AReportForBuildServersHasACaseForEachRank) {
  const std::string worker =
      Script("[ $RANK = 1 ] || exec sleep 100\necho '<bad>' >&2; exit 11");
  EXPECT_EQ(Run({"--worker", worker, "--cpu-procs", "2", "--out", "run",
                 "--junit", "report.xml"}),
            11);
  const std::string failed = Contents("report.xml");
  EXPECT_THAT(failed, HasSubstr("tests=\"3\" failures=\"2\" errors=\"0\" "
                                "skipped=\"1\""));
  EXPECT_THAT(failed, HasSubstr("name=\"run\""));
  EXPECT_THAT(failed,
              HasSubstr("<failure message=\"exited with code 11 (a loss "
                        "that is not finite)\">&lt;bad&gt;"));
  EXPECT_THAT(failed,
              HasSubstr("<skipped message=\"stopped by the runner\"/>"));

  // Also where nothing begins.
  EXPECT_EQ(
      Run({"--worker", "nowhere", "--cpu-procs", "1", "--junit", "report.xml"}),
      launch::kNotFound);
  EXPECT_THAT(Contents("report.xml"),
              HasSubstr("<error message=\"there is no worker nowhere"));
  EXPECT_EQ(
      Run({"--worker", worker, "--cpu-procs", "1", "--junit", "no/report.xml"}),
      launch::kEnvironment);
  EXPECT_THAT(Err(), HasSubstr("error: cannot write the report no/report.xml"));
}

TEST_F(TrainTest, ASignalIsNamed) {
  const std::string worker =
      Script("[ $RANK = 1 ] || exec sleep 100\nkill -$SIGNAL $$");
  EXPECT_EQ(
      Run({"--worker", worker, "--cpu-procs", "2", "--env", "SIGNAL=SEGV"}),
      128 + SIGSEGV);
  EXPECT_THAT(Err(), HasSubstr("error: rank 1 was ended by SIGSEGV after "));
  EXPECT_EQ(
      Run({"--worker", worker, "--cpu-procs", "2", "--env", "SIGNAL=KILL"}),
      128 + SIGKILL);
  EXPECT_THAT(Err(),
              HasSubstr("help: the system kills so when memory runs out"));
}

TEST_F(TrainTest, AVictimIsNotTakenForTheCause) {
  const std::string worker =
      Script("[ $RANK = 1 ] || exit 20\nsleep 0.3; kill -SEGV $$");
  EXPECT_EQ(Run({"--worker", worker, "--cpu-procs", "3", "--out", "run"}),
            128 + SIGSEGV);
  EXPECT_THAT(Err(), HasSubstr("error: rank 1 was ended by SIGSEGV"));
  EXPECT_THAT(Err(), HasSubstr("  after it ranks 0, 2 failed\n"));
}

TEST_F(TrainTest, WhoIgnoresTermIsKilled) {
  const absl::Time start = absl::Now();
  EXPECT_EQ(
      Run(Fake({"--steps=1000", "--deaf:0", "--fail-at-2:1", "--grace", "1"})),
      launch::kNumeric);
  EXPECT_GE(absl::Now() - start, absl::Seconds(1));
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
  EXPECT_THAT(Err(), HasSubstr("     Killing rank 0\n"));
}

TEST_F(TrainTest, ARankThatLeavesEarlyIsNamed) {
  EXPECT_EQ(Run(Fake({"--steps=1000", "--leave-at-2:1", "--grace", "0.5"})),
            launch::kOther);
  EXPECT_THAT(Err(), HasSubstr("    Stopping others left before the training "
                               "was over; rank 0: up to 0.5s to end\n"));
  EXPECT_THAT(
      Err(), HasSubstr("error: rank 1 left early: it exited with code 0 before "
                       "the training was over after "));
}

TEST_F(TrainTest, TimeLimits) {
  EXPECT_EQ(Run(Fake({"--steps=1000", "--timeout", "0.5"})), launch::kTimeout);
  EXPECT_THAT(Err(), HasSubstr("--timeout 500ms is over; ranks 0-1"));
  EXPECT_THAT(Err(),
              HasSubstr("error: the run did not end within --timeout; step "));
  EXPECT_THAT(Err(), HasSubstr(" is saved in run/checkpoints/latest.pth\n"));

  EXPECT_EQ(
      Run(Fake({"--slow-start:1", "--slow-start:2", "--steps=1000",
                "--init-timeout", "0.5", "--kill-wait", "1", "--grace", "0.3"},
               /*processes=*/3)),
      launch::kTimeout);
  EXPECT_THAT(Err(), HasSubstr("ranks 1-2 are not ready after --init-timeout "
                               "500ms; ranks 0-2: up to 0.3s to end\n"));
  EXPECT_THAT(Err(),
              HasSubstr("did not find each other within --init-timeout"));
}

TEST_F(TrainTest, ProcessesThatAreLeftBehindAreEnded) {
  const std::string worker = Script("sleep 100 >/dev/null 2>&1 & echo pid $!");
  EXPECT_EQ(Run({"--worker", worker, "--cpu-procs", "1"}), 0);
  const int left = NumberAfter(Out(), "pid ");
  ASSERT_GT(left, 0);
  EXPECT_TRUE(IsGone(left));
  EXPECT_THAT(Err(), HasSubstr("warning: rank 0 left processes behind"));
}

TEST_F(TrainTest, WorkersDieWithTheRunner) {
  Start(Fake({"--steps=10000", "--grandchild", "--deaf"}));
  WaitUntilReady();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string log = Log(rank, "stdout.log");
    pids.push_back(NumberAfter(log, "ready, process "));
    pids.push_back(NumberAfter(log, "grandchild "));
    ASSERT_GT(pids[2 * rank], 0);
    ASSERT_GT(pids[2 * rank + 1], 0);
    EXPECT_FALSE(IsGone(pids[2 * rank + 1]));
  }
  kill(runner_, SIGKILL);
  EXPECT_EQ(Wait(), 128 + SIGKILL);
  EXPECT_TRUE(Within(absl::Seconds(10), [&] {
    return std::all_of(pids.begin(), pids.end(), IsGone);
  }));
}

TEST_F(TrainTest, TermIsIgnoredInVainOnEveryPath) {
  const absl::Time start = absl::Now();
  Start(Fake({"--steps=10000", "--deaf", "--grace", "1"}));
  WaitUntilReady();
  kill(runner_, SIGINT);
  EXPECT_EQ(Wait(), 128 + SIGINT);
  EXPECT_GE(absl::Now() - start, absl::Seconds(1));
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
  EXPECT_THAT(Err(), HasSubstr("     Killing ranks 0-1\n"));

  fs::remove_all("run");
  EXPECT_EQ(Run(Fake({"--steps=8", "--save", "--deaf:0", "--crash-at-5-once:1",
                      "--in-step", "--max-restarts", "1", "--grace", "1"})),
            0)
      << Err();
  EXPECT_THAT(Err(), HasSubstr("     Killing rank 0\n"));
}

TEST_F(TrainTest, AHangIsEndedAndShownWithAllStacks) {
  EXPECT_EQ(Run(Fake({"--steps=10000", "--stop-at-5:1", "--hang-timeout", "1"},
                     /*processes=*/3)),
            launch::kTimeout);
  EXPECT_THAT(Err(), HasSubstr("error: no progress within --hang-timeout 1s: "
                               "rank 1 is behind\n"));
  EXPECT_THAT(Err(), HasSubstr("\n> rank 1: step 5, train; told "));
  EXPECT_THAT(Err(), HasSubstr("; its process was stopped\n"));
  EXPECT_THAT(Log(1, "stack.txt"),
              AllOf(HasSubstr(", stopped; as the system sees its threads:\n"),
                    HasSubstr("fake_worker: stopped\n"),
                    Not(HasSubstr("stacks of process"))));
  EXPECT_THAT(Log(0, "stack.txt"), HasSubstr("stacks of process "));
  EXPECT_THAT(Log(2, "stack.txt"), HasSubstr("stacks of process "));
  ASSERT_EQ(Events("hang").size(), 1);
  EXPECT_EQ(Events("hang")[0]["ranks"][1]["behind"], true);
  EXPECT_EQ(Events("hang")[0]["ranks"][0]["behind"], false);
  EXPECT_THAT(States(), ElementsAre("spawn", "rendezvous", "running", "hang",
                                    "reap", "done"));
}

TEST_F(TrainTest, ARankThatSleepsInAStepShowsWhere) {
  EXPECT_EQ(
      Run(Fake({"--steps=10000", "--sleep-at-5:0", "--hang-timeout", "1"})),
      launch::kTimeout);
  EXPECT_THAT(Err(), HasSubstr(": rank 0 is behind\n"));
  EXPECT_THAT(Log(0, "stack.txt"),
              AllOf(HasSubstr("stacks of process "), HasSubstr("  pause")));
}

TEST_F(TrainTest, HowFarItIsCanBeAsked) {
  Start(Fake({"--steps=10000", "--save"}));
  WaitUntilReady();
  ASSERT_TRUE(Shows("[r0] step 4\n"));
  ASSERT_TRUE(Shows("[r1] step 4\n"));
  kill(runner_, SIGUSR2);
  EXPECT_TRUE(Within(absl::Seconds(10), [] {
    return absl::StrContains(Err(), "\n  rank 1: step ");
  }));
  EXPECT_THAT(Err(), HasSubstr("  rank 0: step "));
  EXPECT_THAT(Err(), HasSubstr(" MiB; step "));
  kill(runner_, SIGTERM);
  EXPECT_EQ(Wait(), launch::kStopped);
}

// ---------------------------------------------------------------------------
// Restarts.

TEST_F(TrainTest, AfterACrashAllRanksGoOnFromTheLastCheckpoint) {
  ASSERT_EQ(Run(Fake({"--steps=8", "--save", "--crash-at-5-once:1", "--in-step",
                      "--max-restarts", "2"})),
            0)
      << Err();
  EXPECT_THAT(Err(), HasSubstr("  Restarting 2 processes from step "));
  EXPECT_THAT(Err(), HasSubstr(" (restart 1 of 2): rank 1 was ended by SIGSEGV "
                               "at step 5\n"));
  EXPECT_THAT(Err(), Not(HasSubstr("error:")));
  for (int rank = 0; rank < 2; ++rank) {
    const std::string again = Log(rank, "stdout.log", "run", 1);
    const int from = NumberAfter(again, "resumed at step ");
    EXPECT_GE(from, 4);
    EXPECT_THAT(again, HasSubstr(absl::StrCat("\nstep ", from + 1, "\n")));
    EXPECT_THAT(again, Not(HasSubstr(absl::StrCat("\nstep ", from, "\n"))));
    EXPECT_THAT(again, EndsWith("step 8\n"));
    EXPECT_THAT(again, HasSubstr("restart 1 of 2, generation 1\n"));
  }
  EXPECT_THAT(States(), ElementsAre("spawn", "rendezvous", "running", "fail",
                                    "reap", "restart", "spawn", "rendezvous",
                                    "running", "reap", "done"));
  ASSERT_EQ(Events("restart").size(), 1);
  EXPECT_GE(Events("restart")[0]["from_step"], 4);
  const auto summary = nlohmann::json::parse(Contents("run/summary.json"));
  EXPECT_EQ(summary["exit_code"], 0);
  EXPECT_EQ(summary["restarts"], 1);
  EXPECT_EQ(summary["checkpoint"]["step"], 8);
  EXPECT_THAT(Contents("run/summary.txt"),
              StartsWith("    Finished 2 processes in "));
  const auto plan = nlohmann::json::parse(Contents("run/plan.json"));
  EXPECT_EQ(plan["attempt"], 1);
  EXPECT_EQ(plan["command"][3], "--resume");
}

TEST_F(TrainTest, AHangMayBeStartedAgainToo) {
  ASSERT_EQ(Run(Fake({"--steps=8", "--save", "--stop-at-5-once:0", "--in-step",
                      "--max-restarts", "1", "--hang-timeout", "1"})),
            0)
      << Err();
  EXPECT_THAT(Err(), HasSubstr("(restart 1 of 1): no progress, rank 0 is "
                               "behind\n"));
  EXPECT_THAT(Log(1, "stdout.log", "run", 1), HasSubstr("resumed at step 4\n"));
}

TEST_F(TrainTest, OtherProgramsRestartByTheirOwnMeans) {
  const std::string worker = Script(
      "echo \"$TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS, $*, "
      "port $MASTER_PORT\"\n"
      "[ $TORCHELASTIC_RESTART_COUNT = 2 ] || exit 1");
  ASSERT_EQ(Run({"--worker", worker, "--cpu-procs", "1", "--max-restarts", "3",
                 "--out", "run"}),
            0)
      << Err();
  EXPECT_THAT(Log(0, "stdout.log"), StartsWith("0 of 3, --out run, port "));
  EXPECT_THAT(Log(0, "stdout.log", "run", 2),
              StartsWith("2 of 3, --out run, port "));
  EXPECT_NE(NumberAfter(Log(0, "stdout.log"), "port "),
            NumberAfter(Log(0, "stdout.log", "run", 1), "port "));
}

TEST_F(TrainTest, WithoutProgressItGivesUp) {
  const std::string worker = Script(
      "echo '{\"event\":\"hello\",\"rank\":0}' >/proc/self/fd/$MIR_STATUS_FD\n"
      "kill -SEGV $$");
  EXPECT_EQ(Run({"--worker", worker, "--cpu-procs", "1", "--max-restarts", "9",
                 "--out", "run"}),
            128 + SIGSEGV);
  EXPECT_THAT(Err(), HasSubstr("  no restart: twice in a row no newer "
                               "checkpoint was reached"));
  EXPECT_TRUE(fs::exists("run/attempt-1"));
  EXPECT_FALSE(fs::exists("run/attempt-2"));
}

TEST_F(TrainTest, WhatARestartCannotMendIsNotStartedAgain) {
  EXPECT_EQ(Run(Fake({"--steps=100", "--save", "--fail-at-2:1",
                      "--max-restarts", "2"})),
            launch::kNumeric);
  EXPECT_THAT(Err(), HasSubstr("  no restart: --restart-on does not name this "
                               "kind of failure\n"));
  EXPECT_FALSE(fs::exists("run/attempt-1"));
  const auto summary = nlohmann::json::parse(Contents("run/summary.json"));
  EXPECT_EQ(summary["root_cause"], 1);
  EXPECT_EQ(summary["ranks"][1]["code"], launch::kNumeric);
}

TEST_F(TrainTest, AskedToStopWhileItRestartsItDoes) {
  Start(Fake({"--steps=10000", "--save", "--crash-at-5-once:1",
              "--max-restarts", "1"}));
  ASSERT_TRUE(Within(absl::Seconds(10), [] {
    return absl::StrContains(Log(1, "stdout.log", "run", 1), "ready");
  }));
  kill(runner_, SIGTERM);
  EXPECT_EQ(Wait(), launch::kStopped);
}

// ---------------------------------------------------------------------------
// Several nodes: here two runners on this machine, in one folder.

class NodesTest : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    // A pair of free ports.
    while (true) {
      using Port = launch::ReservedPort;
      const auto first = Port::Bind(0, Port::Use::kHandOver);
      ASSERT_TRUE(first.ok());
      if (Port::Bind(first->port() + 1, Port::Use::kHandOver).ok()) {
        port_ = first->port();
        break;
      }
    }
  }
  void TearDown() override {
    if (other_ > 0) {
      kill(other_, SIGKILL);
      waitpid(other_, nullptr, 0);
    }
    TrainTest::TearDown();
  }

  std::vector<std::string> OnNode(int node,
                                  std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {"--nnodes", "2", "--node-rank", absl::StrCat(node),
                      "--master-addr", "127.0.0.1", "--master-port",
                      absl::StrCat(port_), "--init-timeout", "60"});
    return arguments;
  }
  // Node 0 writes to out and err, node 1 to out1 and err1.
  void StartBoth(const std::vector<std::string>& first,
                 const std::vector<std::string>& second) {
    launch::Command command;
    command.argv = OnNode(1, second);
    command.argv.insert(command.argv.begin(), Built("train"));
    command.env = env_;
    const launch::UniqueFd out(
        open("out1", O_WRONLY | O_CREAT | O_TRUNC, 0600));
    const launch::UniqueFd err(
        open("err1", O_WRONLY | O_CREAT | O_TRUNC, 0600));
    command.stdout_fd = out.get();
    command.stderr_fd = err.get();
    const auto pid = launch::Spawn(command);
    ASSERT_TRUE(pid.ok()) << pid.status();
    other_ = *pid;
    Start(OnNode(0, first));
  }
  int WaitForOther() {
    int status = 0;
    EXPECT_EQ(waitpid(other_, &status, 0), other_);
    other_ = 0;
    return launch::ExitCodeOfWaitStatus(status);
  }
  void WaitUntilAllReady(int attempt = 0) {
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(Within(absl::Seconds(20),
                         [&] {
                           return absl::StrContains(
                               Log(rank, "stdout.log", "run", attempt),
                               "ready");
                         }))
          << Err() << Contents("err1");
    }
  }

  int port_ = 0;
  pid_t other_ = 0;
};

TEST_F(NodesTest, RanksAreCountedOverTheNodes) {
  const std::string worker = Script(
      "echo \"$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE "
      "$GROUP_RANK/$GROUP_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT\"");
  StartBoth({"--worker", worker, "--cpu-procs", "1", "--out", "run"},
            {"--worker", worker, "--cpu-procs", "2", "--out", "run"});
  EXPECT_EQ(Wait(), 0) << Err();
  EXPECT_EQ(WaitForOther(), 0) << Contents("err1");
  const std::string at = absl::StrCat(" 127.0.0.1:", port_, "\n");
  EXPECT_EQ(Log(0, "stdout.log"), "0/3 0/1 0/2" + at);
  EXPECT_EQ(Log(1, "stdout.log"), "1/3 0/2 1/2" + at);
  EXPECT_EQ(Log(2, "stdout.log"), "2/3 1/2 1/2" + at);
  EXPECT_TRUE(fs::exists("run/plan.node-1.json"));
}

TEST_F(NodesTest, AFailureOnOneNodeEndsBoth) {
  StartBoth(Fake({"--steps=10000", "--fail-at-2:1"}, 1),
            Fake({"--steps=10000", "--fail-at-2:1"}, 1));
  EXPECT_EQ(Wait(), launch::kNumeric) << Err();
  EXPECT_EQ(WaitForOther(), launch::kNumeric);
  EXPECT_THAT(Err(), HasSubstr("error: node 1: rank 1 exited with code 11"));
  EXPECT_THAT(Contents("err1"), HasSubstr("error: rank 1 exited with code 11"));
}

TEST_F(NodesTest, ACrashOnOneNodeStartsBothAgain) {
  const std::vector<std::string> arguments =
      Fake({"--steps=8", "--save", "--crash-at-5-once:1", "--in-step",
            "--max-restarts", "1"},
           1);
  StartBoth(arguments, arguments);
  EXPECT_EQ(Wait(), 0) << Err();
  EXPECT_EQ(WaitForOther(), 0) << Contents("err1");
  EXPECT_THAT(Err(), HasSubstr("(restart 1 of 1): rank 1 was ended by SIGSEGV "
                               "at step 5\n"));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(Log(rank, "stdout.log", "run", 1),
                AllOf(HasSubstr("resumed at step "), EndsWith("step 8\n")));
  }
}

TEST_F(NodesTest, ARunnerThatIsKilledEndsTheOther) {
  StartBoth(Fake({"--steps=10000", "--deaf", "--grace", "1"}, 1),
            Fake({"--steps=10000", "--deaf", "--grace", "1"}, 1));
  WaitUntilAllReady();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 2; ++rank) {
    pids.push_back(NumberAfter(Log(rank, "stdout.log"), "ready, process "));
  }
  const absl::Time killed = absl::Now();
  kill(other_, SIGKILL);
  EXPECT_EQ(WaitForOther(), 128 + SIGKILL);
  EXPECT_EQ(Wait(), launch::kPeer) << Err();
  EXPECT_LT(absl::Now() - killed, absl::Seconds(50));
  EXPECT_THAT(Err(), HasSubstr("error: node 1: node 1 is lost: its runner is "
                               "gone\n"));
  EXPECT_TRUE(Within(absl::Seconds(10), [&] {
    return std::all_of(pids.begin(), pids.end(), IsGone);
  }));
}

TEST_F(NodesTest, AStopOnOneNodeSavesOnBoth) {
  StartBoth(Fake({"--steps=10000"}, 1), Fake({"--steps=10000"}, 1));
  WaitUntilAllReady();
  kill(other_, SIGTERM);
  EXPECT_EQ(Wait(), launch::kStopped) << Err();
  EXPECT_EQ(WaitForOther(), launch::kStopped) << Contents("err1");
  EXPECT_THAT(Err(), HasSubstr("node 1: stopped by SIGTERM; rank 0: up to"));
}

TEST_F(NodesTest, NodesWithOtherOptionsAreRefused) {
  StartBoth(Fake({"--lr=1"}, 1), Fake({"--lr=2"}, 1));
  EXPECT_EQ(Wait(), launch::kEnvironment);
  EXPECT_EQ(WaitForOther(), launch::kEnvironment);
  for (const std::string& words : {Err(), Contents("err1")}) {
    EXPECT_THAT(words, AllOf(HasSubstr("the nodes were started differently"),
                             HasSubstr("--lr=1"), HasSubstr("--lr=2")));
  }
}

// ---------------------------------------------------------------------------
// Stopping.

TEST_F(TrainTest, AskedToStopItSaves) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
    Start(Fake({"--steps=10000"}));
    WaitUntilReady();
    kill(runner_, signal);
    EXPECT_EQ(Wait(), launch::kStopped) << Err();
    EXPECT_THAT(Err(), HasSubstr("    Stopping ranks 0-1: up to 30.0s to save "
                                 "and end"));
    EXPECT_THAT(Err(), HasSubstr("     Stopped after "));
    EXPECT_THAT(Err(), HasSubstr("is saved in run/checkpoints/latest.pth\n"));
  }
}

TEST_F(TrainTest, StoppedWithoutAConsoleItSaysHowToGoOn) {
  Start({"--worker", Built("fake_worker"), "--cpu-procs", "1", "--console",
         "none", "--out", "run", "--steps=10000"});
  ASSERT_TRUE(Within(absl::Seconds(10), [] {
    return absl::StrContains(Log(0, "stdout.log"), "ready");
  }));
  kill(runner_, SIGTERM);
  EXPECT_EQ(Wait(), launch::kStopped);
  EXPECT_EQ(Out(), "");
  EXPECT_THAT(Err(), HasSubstr("help: go on with --resume --out run\n"));
}

TEST_F(TrainTest, AskedTwiceItEndsAtOnce) {
  Start(Fake({"--steps=10000", "--slow-save"}));
  WaitUntilReady();
  kill(runner_, SIGINT);
  absl::SleepFor(absl::Milliseconds(500));
  kill(runner_, SIGINT);
  EXPECT_EQ(Wait(), 128 + SIGINT);
  EXPECT_THAT(Err(), HasSubstr("(Ctrl-C again: at once)\n"));
  EXPECT_THAT(Err(), HasSubstr("up to 10.0s to end (Ctrl-C again kills)\n"));
  EXPECT_THAT(Err(), Not(HasSubstr("Killing")));
  EXPECT_THAT(
      Err(),
      HasSubstr("error: stopped by SIGINT before a checkpoint was complete\n"));
}

TEST_F(TrainTest, AskedThreeTimesItKills) {
  Start(Fake({"--steps=10000", "--deaf"}));
  WaitUntilReady();
  for (int i = 0; i < 3; ++i) {
    kill(runner_, SIGTERM);
    absl::SleepFor(absl::Milliseconds(400));
  }
  EXPECT_EQ(Wait(), 128 + SIGTERM);
  EXPECT_THAT(Err(), HasSubstr("     Killing ranks 0-1\n"));
}

// ---------------------------------------------------------------------------
// What is found before any worker starts.

TEST_F(TrainTest, WrongArgumentsAreToldOnce) {
  EXPECT_EQ(Run(Fake({"--wrong"})), launch::kArguments);
  EXPECT_EQ(Err(), "error: --wrong is wrong\n");
  EXPECT_EQ(Out(), "");
  EXPECT_FALSE(fs::exists("run"));  // No empty folder is left.
}

TEST_F(TrainTest, ACheckThatCrashesIsTold) {
  EXPECT_EQ(Run(Fake({"--crash-in-check"})), 128 + SIGABRT);
  EXPECT_THAT(Err(), HasSubstr("was ended by SIGABRT while it checked its "
                               "arguments\n"));
}

TEST_F(TrainTest, ItsOwnWrongOptionsAreTold) {
  EXPECT_EQ(Run({"--gpus", "many"}), launch::kArguments);
  EXPECT_EQ(Err(),
            "error: --gpus many: wants a number from 1 to 4096, or all\n"
            "help: --help lists the options\n");
  EXPECT_EQ(Run({"--model", "voxelmorf", "--cpu-procs", "1"}),
            launch::kArguments);
  EXPECT_THAT(Err(), AllOf(HasSubstr("--model voxelmorf"),
                           HasSubstr("did you mean voxelmorph?")));
}

TEST_F(TrainTest, OptionsThatMeanNothingHereAreRefused) {
  EXPECT_EQ(Run(Fake({"--resume=1"})), launch::kArguments);
  EXPECT_THAT(Err(), StartsWith("error: --resume takes no value, got "
                                "--resume=1\nhelp: name the run"));
  EXPECT_FALSE(fs::exists("run"));
  EXPECT_EQ(Run(Fake({"--tee", "3"})), launch::kArguments);
  EXPECT_THAT(Err(), StartsWith("error: --tee is torchrun's: --console all"));
  EXPECT_EQ(Run(Fake({"--restart-on", "fire"})), launch::kArguments);
  EXPECT_THAT(Err(), HasSubstr("signal, peer, preempt, hang, error"));
  EXPECT_EQ(Run(Fake({"--no-python", "--", "--tee"})), 0) << Err();
}

TEST_F(TrainTest, WithoutGpusItSaysWhatToDo) {
  env_["CUDA_VISIBLE_DEVICES"] = "";
  EXPECT_EQ(Run({"--gpus", "4"}), launch::kEnvironment);
  EXPECT_EQ(Err(),
            "error: --gpus 4, but 0 CUDA devices are visible "
            "(CUDA_VISIBLE_DEVICES is empty)\n"
            "help: use --cpu-procs 4 to run the same program on the CPU with "
            "gloo\n");
  EXPECT_EQ(Run({}), launch::kEnvironment);
  EXPECT_THAT(Err(), HasSubstr("help: use --cpu-procs "));
}

TEST_F(TrainTest, AGpuForEachProcess) {
  env_["LD_LIBRARY_PATH"] = Built("fake_cuda");
  env_["FAKE_CUDA_DEVICES"] = "3";
  const std::string worker =
      Script("echo \"$*, of ${CUDA_VISIBLE_DEVICES-all}\"", /*ours=*/true);
  ASSERT_EQ(Run({"--worker", worker, "--out", "run"}), 0) << Err();
  EXPECT_EQ(Log(2, "stdout.log"), "--device=cuda --out=run, of all\n");
  EXPECT_THAT(Err(), HasSubstr("Running 3 processes on GPUs"));
  EXPECT_EQ(Run({"--worker", worker, "--gpus", "4"}), launch::kEnvironment);
  EXPECT_THAT(Err(),
              HasSubstr("--gpus 4, but only 3 CUDA devices are visible "
                        "(0: Fake GPU 0, 1: Fake GPU 1, 2: Fake GPU 2)"));
}

TEST_F(TrainTest, APortInUseIsNamed) {
  const auto held =
      launch::ReservedPort::Bind(0, launch::ReservedPort::Use::kHandOver);
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(Run(Fake({"--master-port", absl::StrCat(held->port())})),
            launch::kEnvironment);
  EXPECT_THAT(Err(), HasSubstr(absl::StrCat(
                         "--master-port ", held->port(), ": port ",
                         held->port(), " is in use by process ", getpid())));
  EXPECT_FALSE(fs::exists("run"));
}

TEST_F(TrainTest, FoldersThatCannotBeWrittenAreNamed) {
  std::ofstream("file") << "x";
  const std::string worker = Script("echo never >marker");
  EXPECT_EQ(Run({"--worker", worker, "--cpu-procs", "1", "--out", "file/run"}),
            launch::kEnvironment);
  EXPECT_EQ(Err(),
            "error: cannot write to the output folder file/run: Not a "
            "directory\nhelp: choose another with --out\n");
  EXPECT_FALSE(fs::exists("marker"));
}

TEST_F(TrainTest, ProgramsThatCannotBeStarted) {
  EXPECT_EQ(Run({"--worker", "nowhere", "--cpu-procs", "1"}),
            launch::kNotFound);
  EXPECT_THAT(Err(), HasSubstr("there is no worker nowhere"));
  std::ofstream("text") << "x";
  EXPECT_EQ(Run({"--worker", "text", "--cpu-procs", "1"}),
            launch::kNotExecutable);
  EXPECT_THAT(Err(), HasSubstr("the worker text is not an executable file"));
  chmod("text", 0755);
  EXPECT_EQ(Run({"--worker", "./text", "--cpu-procs", "1"}),
            launch::kNotExecutable);
  EXPECT_THAT(Err(), HasSubstr("cannot start ./text: Exec format error"));
  // Outside a workspace, with no program beside the runner.
  EXPECT_EQ(Run({"--cpu-procs", "1"}), launch::kNotFound);
  EXPECT_THAT(Err(), AllOf(HasSubstr("/train_voxelmorph"),
                           HasSubstr("help: give it with --worker PATH")));
}

TEST_F(TrainTest, HelpAndDryRunStartNothing) {
  const std::string worker = Script("echo program ran");
  EXPECT_EQ(Run({"--help", "--worker", worker}), 0);
  EXPECT_THAT(Out(),
              AllOf(HasSubstr("--cpu-procs N"), HasSubstr("--help-worker"),
                    Not(HasSubstr("program ran"))));
  EXPECT_EQ(Run({"--dry-run", "--worker", worker, "--cpu-procs", "2", "--lr",
                 "1", "--env", "A=b", "--out", "run"}),
            0);
  EXPECT_EQ(Out(), "");
  EXPECT_THAT(Err(), AllOf(HasSubstr("     Program worker.sh\n"),
                           HasSubstr("   Arguments --lr 1 --out run\n"),
                           HasSubstr("   Processes 2 on the CPU, "),
                           HasSubstr("    Variable A=b\n")));
  EXPECT_FALSE(fs::exists("run"));
}

TEST_F(TrainTest, TheWorkersOwnHelpIsShown) {
  EXPECT_EQ(Run({"--help-worker", "--worker", Built("fake_worker")}), 0);
  EXPECT_EQ(Out(), "Usage: fake_worker\n");
}

// ---------------------------------------------------------------------------
// Building the worker.

class BuildTest : public TrainTest {
 protected:
  // A bazel that notes its arguments and runs `body`.
  void WriteBazel(const std::string& body) {
    fs::create_directories("bin");
    fs::create_directories("workspace");
    std::ofstream("bin/bazel")
        << "#!/bin/sh\necho \"$(pwd) $*\" >" << folder_ << "/bazel.txt\n"
        << "for a; do case $a in --build_event_json_file=*) "
           "EVENTS=${a#*=};; esac; done\n"
        << body << "\n";
    chmod("bin/bazel", 0755);
    env_["PATH"] = folder_ + "/bin:" + env_["PATH"];
    env_["BUILD_WORKSPACE_DIRECTORY"] = folder_ + "/workspace";
  }
};

TEST_F(BuildTest, InsideAWorkspaceBazelBuildsTheModelsProgram) {
  fs::create_directories("a b");
  std::ofstream("a b/train_voxelmorph") << "#!/bin/sh\necho built; exit 0\n";
  chmod("a b/train_voxelmorph", 0755);
  WriteBazel(
      absl::StrCat("echo noise; echo "
                   "'{\"id\":{}}\n{\"namedSetOfFiles\":{\"files\":[{\"uri\":"
                   "\"file:///x/other\"},{\"uri\":\"file://",
                   folder_, "/a%20b/train_voxelmorph\"}]}}' >$EVENTS"));
  ASSERT_EQ(Run({"--cpu-procs", "1"}), 0) << Err();
  EXPECT_EQ(Out(), "[r0] built\n");
  EXPECT_THAT(Contents("bazel.txt"),
              StartsWith(folder_ + "/workspace build "
                                   "//mir/models/voxelmorph:train_voxelmorph "
                                   "--build_event_json_file="));
  EXPECT_THAT(Err(), StartsWith("   Compiling "
                                "//mir/models/voxelmorph:train_voxelmorph\n"
                                "    Finished train_voxelmorph in "));
  EXPECT_THAT(Err(), Not(HasSubstr("noise")));
}

TEST_F(BuildTest, GpusAskForTheCudaConfiguration) {
  env_["LD_LIBRARY_PATH"] = Built("fake_cuda");
  env_["FAKE_CUDA_DEVICES"] = "1";
  WriteBazel("exit 1");
  EXPECT_EQ(Run({"--gpus", "1"}), launch::kEnvironment);
  EXPECT_THAT(Contents("bazel.txt"), HasSubstr(" build --config=cuda //mir/"));
}

TEST_F(BuildTest, AFailedBuildIsShown) {
  WriteBazel("echo 'ERROR: no such thing' >&2; exit 7");
  EXPECT_EQ(Run({"--cpu-procs", "1"}), launch::kEnvironment);
  EXPECT_THAT(
      Err(),
      AllOf(HasSubstr("ERROR: no such thing\n"),
            HasSubstr(
                "error: cannot build //mir/models/voxelmorph:train_voxelmorph: "
                "bazel ended with 7 in ")));
  EXPECT_FALSE(fs::exists("runs"));
}

TEST_F(BuildTest, ABuildWithoutAResultIsTold) {
  WriteBazel("exit 0");
  EXPECT_EQ(Run({"--cpu-procs", "1"}), launch::kEnvironment);
  EXPECT_THAT(Err(), HasSubstr("but does not say where it is\n"
                               "help: give it with --worker PATH\n"));
}

TEST_F(BuildTest, WithoutBazelItSaysSo) {
  env_["BUILD_WORKSPACE_DIRECTORY"] = folder_;
  env_["PATH"] = folder_;
  EXPECT_EQ(Run({"--cpu-procs", "1"}), launch::kNotFound);
  EXPECT_THAT(Err(), HasSubstr("there is no bazel in PATH"));
}

TEST_F(BuildTest, DryRunSaysWhatWouldBeBuilt) {
  WriteBazel("exit 0");
  EXPECT_EQ(Run({"--cpu-procs", "1", "--dry-run"}), 0);
  EXPECT_THAT(Err(),
              HasSubstr("     Program what `bazel build "
                        "//mir/models/voxelmorph:train_voxelmorph` makes\n"));
  EXPECT_FALSE(fs::exists("bazel.txt"));
}

// ---------------------------------------------------------------------------
// On a terminal.

class TerminalTest : public TrainTest {
 protected:
  // Starts the runner as the foreground job of a terminal of 60 columns.
  void StartOnTerminal(const std::vector<std::string>& arguments) {
    master_ = launch::UniqueFd(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    ASSERT_EQ(grantpt(master_.get()), 0);
    ASSERT_EQ(unlockpt(master_.get()), 0);
    winsize size = {};
    size.ws_col = 60;
    ioctl(master_.get(), TIOCSWINSZ, &size);
    const std::string name = ptsname(master_.get());
    std::vector<std::string> line = arguments;
    line.insert(line.begin(), Built("train"));
    std::vector<char*> argv;
    for (std::string& argument : line) argv.push_back(&argument[0]);
    argv.push_back(nullptr);
    runner_ = fork();
    if (runner_ == 0) {
      setsid();
      const int terminal = open(name.c_str(), O_RDWR);  // Becomes its own.
      for (const int fd : {0, 1, 2}) dup2(terminal, fd);
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  // Reads until `text` has come or the terminal is closed.
  const std::string& ReadUntil(const std::string& text) {
    char buffer[4096];
    while (!absl::StrContains(screen_, text)) {
      const ssize_t got = read(master_.get(), buffer, sizeof(buffer));
      if (got == -1 && errno == EINTR) continue;
      if (got <= 0) break;
      screen_.append(buffer, got);
    }
    return screen_;
  }
  void Type(char key) { ASSERT_EQ(write(master_.get(), &key, 1), 1); }

  launch::UniqueFd master_;
  std::string screen_;
};

TEST_F(TerminalTest, CtrlCSavesAndStops) {
  StartOnTerminal(Fake({"--steps=10000"}));
  ReadUntil("[r0]\033[0m ready");
  ReadUntil("[r1]\033[0m ready");
  Type('\x03');
  EXPECT_THAT(ReadUntil("is saved in"),
              HasSubstr("\033[1;33mStopping\033[0m ranks 0-1: up to 30.0s to "
                        "save and end (Ctrl-C again: at once)"));
  ReadUntil("the end");
  EXPECT_EQ(Wait(), launch::kStopped);
}

TEST_F(TerminalTest, CtrlZHaltsTheWorkersToo) {
  StartOnTerminal(Fake({"--steps=10000"}, /*processes=*/1));
  ReadUntil("ready, process ");
  ReadUntil("\n");
  ASSERT_TRUE(Shows(""));
  const pid_t worker = NumberAfter(Log(0, "stdout.log"), "ready, process ");
  ASSERT_GT(worker, 0);
  kill(runner_, SIGTSTP);
  const auto state = [](pid_t pid) {
    const std::string stat = Contents(absl::StrCat("/proc/", pid, "/stat"));
    const size_t end = stat.rfind(')');
    return end == std::string::npos ? "" : stat.substr(end + 2, 1);
  };
  EXPECT_TRUE(Within(absl::Seconds(10), [&] {
    return state(worker) == "T" && state(runner_) == "T";
  }));
  kill(runner_, SIGCONT);
  EXPECT_TRUE(Within(absl::Seconds(10), [&] { return state(worker) != "T"; }));
  kill(runner_, SIGTERM);
  ReadUntil("the end");
  EXPECT_EQ(Wait(), launch::kStopped);
}

TEST_F(TerminalTest, WorkersKnowItsWidthAndRedrawInPlace) {
  const std::string worker = Script(
      "echo \"columns $MIR_STDOUT_COLUMNS $MIR_STDERR_COLUMNS\"\n"
      "[ $RANK = 0 ] || exit 0\n"
      "for i in 1 2 3; do printf \"\\r$i of 3\" >&2; sleep 0.1; done\n"
      "printf '\\rdone\\n' >&2");
  StartOnTerminal({"--worker", worker, "--cpu-procs", "2", "--out", "run"});
  const std::string screen = ReadUntil("the end");
  EXPECT_EQ(Wait(), 0);
  EXPECT_THAT(screen, HasSubstr("columns 55 55\r\n"));
  EXPECT_EQ(Log(1, "stdout.log"), "columns  \n");  // It is not shown.
  EXPECT_THAT(screen,
              HasSubstr("\r\033[K\033[2;31m[r0]\033[0m 2 of 3\r\033[K"));
  EXPECT_THAT(screen, HasSubstr("[r0]\033[0m done\r\n"));
  EXPECT_THAT(screen, HasSubstr("\033[1;32mFinished\033[0m 2 processes"));
}

}  // namespace
}  // namespace mir::tools
