#include "mir/launch/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "mir/launch/exit_codes.h"
#include "mir/testing/status_matchers.h"

namespace mir::launch {
namespace {

using ::mir::testing::IsOk;
using ::mir::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// ---------------------------------------------------------------------------
// Judge, on ends that are made up.

constexpr int Exit(int code) { return code << 8; }
constexpr int Signal(int signal) { return signal; }

WorkerReport End(int wait_status, bool signalled = false, bool hello = true,
                 bool bye = true) {
  WorkerReport report;
  report.ended = true;
  report.wait_status = wait_status;
  report.signalled = signalled;
  report.hello = hello;
  report.bye = bye;
  return report;
}

// Ranks 0, 1, … ended as given, in the order of `order`.
Outcome Judged(StopReason reason, std::vector<WorkerReport> workers,
               std::vector<int> order, int signal = 0) {
  Outcome outcome;
  outcome.reason = reason;
  outcome.signal = signal;
  outcome.order = std::move(order);
  outcome.workers = std::move(workers);
  for (int i = 0; i < outcome.workers.size(); ++i) outcome.workers[i].rank = i;
  Judge(&outcome);
  return outcome;
}

TEST(JudgeTest, AllWell) {
  const Outcome outcome =
      Judged(StopReason::kNone, {End(Exit(0)), End(Exit(0))}, {1, 0});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.root_cause, -1);
}

TEST(JudgeTest, TheFirstFailureIsTheCause) {
  const Outcome outcome = Judged(StopReason::kFailure,
                                 {End(Exit(0)), End(Exit(10)), End(Exit(11)),
                                  End(Signal(SIGTERM), /*signalled=*/true)},
                                 {2, 1, 0, 3});
  EXPECT_EQ(outcome.exit_code, 11);
  EXPECT_EQ(outcome.root_cause, 2);
}

TEST(JudgeTest, VictimsThatEndFirstAreNotTheCause) {
  const Outcome outcome = Judged(
      StopReason::kFailure,
      {End(Exit(kPeer)), End(Signal(SIGSEGV)), End(Exit(kPeer))}, {0, 2, 1});
  EXPECT_EQ(outcome.exit_code, 128 + SIGSEGV);
  EXPECT_EQ(outcome.root_cause, 1);
}

TEST(JudgeTest, ACulpritThatWasSignalledMeanwhileIsStillTheCause) {
  const Outcome outcome =
      Judged(StopReason::kFailure,
             {End(Exit(kPeer)), End(Signal(SIGTERM), /*signalled=*/true),
              End(Signal(SIGABRT), /*signalled=*/true)},
             {0, 1, 2});
  EXPECT_EQ(outcome.exit_code, 128 + SIGABRT);
  EXPECT_EQ(outcome.root_cause, 2);
}

TEST(JudgeTest, ARankThatLeftEarlyIsTheCauseOfItsVictims) {
  const Outcome outcome = Judged(
      StopReason::kFailure,
      {End(Exit(kPeer)), End(Exit(0), false, true, /*bye=*/false)}, {1, 0});
  EXPECT_EQ(outcome.exit_code, kOther);
  EXPECT_EQ(outcome.root_cause, 1);
}

TEST(JudgeTest, WithoutAnyOtherCauseItIsTheFirstVictim) {
  const Outcome outcome =
      Judged(StopReason::kFailure,
             {End(Exit(0)), End(Exit(kPeer)), End(Exit(kPeer))}, {0, 2, 1});
  EXPECT_EQ(outcome.exit_code, kPeer);
  EXPECT_EQ(outcome.root_cause, 2);
}

TEST(JudgeTest, StoppedBySignal) {
  const auto code = [](std::vector<WorkerReport> workers) {
    for (WorkerReport& worker : workers) worker.signalled = true;
    return Judged(StopReason::kSignal, std::move(workers), {0, 1}, SIGINT)
        .exit_code;
  };
  EXPECT_EQ(code({End(Exit(kStopped)), End(Exit(kStopped))}), kStopped);
  EXPECT_EQ(code({End(Exit(kStopped)), End(Exit(0))}), kStopped);
  EXPECT_EQ(code({End(Exit(0)), End(Exit(0))}), 0);
  EXPECT_EQ(code({End(Exit(kStopped)), End(Signal(SIGTERM))}), 130);
  EXPECT_EQ(code({End(Signal(SIGKILL)), End(Signal(SIGKILL))}), 130);
  // It could not save.
  EXPECT_EQ(code({End(Exit(kPeer)), End(Exit(kCheckpoint))}), kCheckpoint);
  // A program of another contract ends with whatever.
  EXPECT_EQ(code({End(Exit(1), true, /*hello=*/false),
                  End(Signal(SIGTERM), true, false)}),
            130);
}

TEST(JudgeTest, Timeouts) {
  for (const StopReason reason :
       {StopReason::kTimeout, StopReason::kInitTimeout}) {
    const Outcome outcome = Judged(reason,
                                   {End(Exit(kStopped), /*signalled=*/true),
                                    End(Exit(1), /*signalled=*/true)},
                                   {0, 1});
    EXPECT_EQ(outcome.exit_code, kTimeout);
    EXPECT_EQ(outcome.root_cause, -1);
  }
}

TEST(JudgeTest, StoppedBecauseOfAnotherMachine) {
  const auto judged = [](int first, bool signalled) {
    return Judged(StopReason::kElsewhere,
                  {End(first, signalled), End(Signal(SIGTERM), true)}, {0, 1});
  };
  EXPECT_EQ(judged(Exit(kPeer), true).root_cause, -1);
  EXPECT_EQ(judged(Exit(kPeer), false).root_cause, -1);
  EXPECT_EQ(judged(Exit(1), true).root_cause, -1);
  EXPECT_EQ(judged(Exit(1), true).exit_code, kOther);
  EXPECT_EQ(judged(Exit(11), false).root_cause, 0);
  EXPECT_EQ(
      Judged(StopReason::kElsewhere,
             {End(Exit(kStopped), true), End(Exit(kStopped), true)}, {0, 1})
          .exit_code,
      kStopped);
}

TEST(JudgeTest, AHangIsATimeout) {
  const Outcome outcome = Judged(StopReason::kHang,
                                 {End(Signal(SIGKILL), /*signalled=*/true),
                                  End(Exit(kPeer), /*signalled=*/true)},
                                 {1, 0});
  EXPECT_EQ(outcome.exit_code, kTimeout);
  EXPECT_EQ(outcome.root_cause, -1);
}

TEST(JudgeTest, AWorkerThatCannotBeKilledIsNoSuccess) {
  WorkerReport stuck;
  const Outcome outcome =
      Judged(StopReason::kSignal, {End(Exit(0)), stuck}, {0}, SIGTERM);
  EXPECT_EQ(outcome.exit_code, 143);
}

TEST(JudgeTest, StoppedFromOutside) {
  EXPECT_EQ(Judged(StopReason::kNone,
                   {End(Exit(kStopped)), End(Exit(kStopped))}, {0, 1})
                .exit_code,
            kStopped);
  EXPECT_EQ(
      Judged(StopReason::kStopped,
             {End(Exit(kStopped)), End(Signal(SIGTERM), /*signalled=*/true)},
             {0, 1})
          .exit_code,
      kOther);
}

// ---------------------------------------------------------------------------
// Supervise, with real processes.

struct Recorder : Observer {
  void Output(int rank, Stream stream, absl::string_view bytes) override {
    absl::StrAppend(&output[{rank, stream}], bytes);
  }
  void OutputEnded(int, Stream) override { ++ended_outputs; }
  void Status(const WorkerReport&, const StatusLine&) override {
    ++status_lines;
  }
  void Stopping(StopReason reason, int, absl::Duration,
                const std::vector<int>& ranks) override {
    stops.push_back(ranks);
    reasons.push_back(reason);
  }
  void Killing(const std::vector<int>& ranks) override {
    kills.push_back(ranks);
  }
  void Hanging(const std::vector<WorkerReport>& workers) override {
    hanging = workers;
  }
  void StatusAsked(const std::vector<WorkerReport>& workers) override {
    asked = workers;
  }
  void LogFault(const std::string& path, const std::string& why) override {
    log_faults.push_back(path + ": " + why);
  }
  bool Takes(int, Stream) override { return takes; }
  bool WantsStop() override { return absl::Now() >= stop_at; }

  std::map<std::pair<int, Stream>, std::string> output;
  int ended_outputs = 0;
  int status_lines = 0;
  std::vector<std::vector<int>> stops;
  std::vector<StopReason> reasons;
  std::vector<std::vector<int>> kills;
  std::vector<WorkerReport> hanging;
  std::vector<WorkerReport> asked;
  std::vector<std::string> log_faults;
  bool takes = true;
  absl::Time stop_at = absl::InfiniteFuture();
};

class SuperviseTest : public ::testing::Test {
 protected:
  // One shell per script.
  absl::StatusOr<Outcome> Run(const std::vector<std::string>& scripts) {
    std::vector<WorkerSpec> workers;
    for (const std::string& script : scripts) {
      WorkerSpec worker;
      worker.rank = workers.size();
      worker.command.argv = {"/bin/sh", "-c", kPrelude + script};
      worker.command.env = {{"PATH", "/usr/bin:/bin"}};
      worker.log_folder = Folder(worker.rank);
      std::filesystem::create_directories(worker.log_folder);
      workers.push_back(worker);
    }
    const absl::Time start = absl::Now();
    absl::StatusOr<Outcome> outcome = Supervise(workers, options_, &recorder_);
    took_ = absl::Now() - start;
    return outcome;
  }

  static std::string Folder(int rank) {
    return absl::StrCat(
        ::testing::TempDir(), "/",
        ::testing::UnitTest::GetInstance()->current_test_info()->name(), "/",
        rank);
  }
  static std::string Log(int rank, const std::string& name) {
    std::ifstream file(Folder(rank) + "/" + name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  // say: writes a status line.
  static inline const std::string kPrelude =
      "say() { echo \"$1\" >/proc/self/fd/$MIR_STATUS_FD; }\n"
      "hello() { say '{\"event\":\"hello\",\"rank\":0}'; }\n"
      "ready() { say '{\"event\":\"ready\"}'; }\n"
      "beat() { say "
      "\"{\\\"event\\\":\\\"beat\\\",\\\"step\\\":$1,\\\"phase\\\":\\\"$2\\\"}"
      "\"; }\n"
      "bye() { say '{\"event\":\"bye\",\"code\":0}'; }\n";

  SupervisorOptions options_;
  Recorder recorder_;
  absl::Duration took_;
};

TEST_F(SuperviseTest, OutputsAndStatusComeThrough) {
  const auto outcome = Run({
      "echo out; printf 'err\\377' >&2",
      "hello; ready; say '{\"event\":\"beat\",\"step\":7,\"phase\":\"eval\"}'; "
      "say '{\"event\":\"checkpoint\",\"path\":\"/c\",\"step\":6}'; bye",
  });
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->exit_code, 0);
  EXPECT_EQ(outcome->reason, StopReason::kNone);
  EXPECT_EQ((recorder_.output[{0, Stream::kStdout}]), "out\n");
  EXPECT_EQ((recorder_.output[{0, Stream::kStderr}]), "err\xff");
  EXPECT_EQ(recorder_.ended_outputs, 4);
  EXPECT_EQ(Log(0, "stdout.log"), "out\n");
  EXPECT_EQ(Log(0, "stderr.log"), "err\xff");
  EXPECT_EQ(outcome->workers[0].stderr_tail, "err\xff");
  EXPECT_EQ(recorder_.status_lines, 5);
  const WorkerReport& worker = outcome->workers[1];
  EXPECT_TRUE(worker.hello && worker.ready && worker.bye);
  EXPECT_EQ(worker.step, 7);
  EXPECT_EQ(worker.phase, "eval");
  EXPECT_EQ(worker.checkpoint, "/c");
  EXPECT_EQ(worker.checkpoint_step, 6);
  EXPECT_THAT(outcome->order, UnorderedElementsAre(0, 1));
}

TEST_F(SuperviseTest, AFailureStopsTheOthers) {
  const auto outcome =
      Run({"exec sleep 100", "sleep 0.2; exit 11", "exec sleep 100"});
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->exit_code, 11);
  EXPECT_EQ(outcome->root_cause, 1);
  EXPECT_EQ(outcome->reason, StopReason::kFailure);
  EXPECT_THAT(recorder_.stops, ElementsAre(ElementsAre(0, 2)));
  EXPECT_THAT(recorder_.kills, IsEmpty());
  EXPECT_FALSE(outcome->workers[1].signalled);
  EXPECT_TRUE(outcome->workers[2].signalled);
  EXPECT_LT(took_, absl::Seconds(10));
}

TEST_F(SuperviseTest, ASignalledRankIsNamedThoughItsVictimsEndedFirst) {
  const auto outcome = Run({"exit 20", "sleep 0.3; kill -SEGV $$", "exit 20"});
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->exit_code, 128 + SIGSEGV);
  EXPECT_EQ(outcome->root_cause, 1);
  EXPECT_FALSE(outcome->workers[1].signalled);
}

TEST_F(SuperviseTest, WhoIgnoresTermIsKilledAfterTheGrace) {
  options_.grace = absl::Seconds(1);
  const auto outcome =
      Run({"trap '' TERM; while :; do sleep 0.1; done", "sleep 0.3; exit 3"});
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->exit_code, 3);
  EXPECT_EQ(outcome->workers[0].wait_status, Signal(SIGKILL));
  EXPECT_THAT(recorder_.kills, ElementsAre(ElementsAre(0)));
  EXPECT_GE(took_, absl::Seconds(1));
  EXPECT_LT(took_, absl::Seconds(10));
}

TEST_F(SuperviseTest, EndsAreToldInTheirOrder) {
  const auto outcome = Run({"sleep 0.6", "sleep 0.3", "true"});
  ASSERT_THAT(outcome, IsOk());
  EXPECT_THAT(outcome->order, ElementsAre(2, 1, 0));
}

TEST_F(SuperviseTest, WhoPromisedAByeAndLeavesWithoutStopsTheOthers) {
  options_.grace = absl::Milliseconds(500);
  const auto outcome = Run({"hello; sleep 0.1", "exec sleep 100"});
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->reason, StopReason::kLeftEarly);
  EXPECT_EQ(outcome->exit_code, kOther);
  EXPECT_EQ(outcome->root_cause, 0);
  EXPECT_GE(took_, absl::Milliseconds(500));
}

TEST_F(SuperviseTest, AnEarlyEndInPeaceIsWaitedFor) {
  options_.grace = absl::Milliseconds(100);
  // The first says bye; the second never promised anything.
  const auto outcome = Run({"hello; ready; bye", "true", "sleep 0.6"});
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->exit_code, 0);
  EXPECT_THAT(recorder_.stops, IsEmpty());
}

TEST_F(SuperviseTest, AStoppedRankStopsTheOthersAfterTheGrace) {
  options_.grace = absl::Milliseconds(300);
  const auto outcome =
      Run({"sleep 0.2; exit 75",
           "trap 'exit 75' TERM; while :; do sleep 0.1; done"});
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->reason, StopReason::kStopped);
  EXPECT_EQ(outcome->exit_code, kStopped);
}

TEST_F(SuperviseTest, RanksThatDoNotMeetAreATimeout) {
  options_.init_timeout = absl::Milliseconds(500);
  const auto outcome =
      Run({"hello; ready; exec sleep 100", "hello; exec sleep 100"});
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->reason, StopReason::kInitTimeout);
  EXPECT_EQ(outcome->exit_code, kTimeout);
  EXPECT_TRUE(outcome->workers[0].ready);
  EXPECT_FALSE(outcome->workers[1].ready);
}

TEST_F(SuperviseTest, ProgramsWithoutStatusLinesHaveNoInitTimeout) {
  options_.init_timeout = absl::Milliseconds(100);
  const auto outcome = Run({"sleep 0.5"});
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->exit_code, 0);
}

TEST_F(SuperviseTest, TheWholeMayHaveATimeout) {
  options_.timeout = absl::Milliseconds(300);
  const auto outcome = Run({"exec sleep 100", "exec sleep 100"});
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->reason, StopReason::kTimeout);
  EXPECT_EQ(outcome->exit_code, kTimeout);
}

// Beside hanging: at an earlier step, in an earlier phase, stopped at the same
// place.
TEST_F(SuperviseTest, AHangNamesWhoIsBehindAndShowsAllThreads) {
  options_.hang_timeout = absl::Seconds(1);
  const std::string wait = "exec sleep 100";
  struct Case {
    std::string early;
    std::string late;
  };
  for (const Case& c :
       {Case{"beat 4 train; " + wait, "beat 5 train; " + wait},
        Case{"beat 5 data; " + wait, "beat 5 data; beat 5 train; " + wait},
        Case{"beat 5 data; kill -STOP $$", "beat 5 data; " + wait}}) {
    const auto outcome =
        Run({"hello; ready; " + c.late, "hello; ready; " + c.early});
    ASSERT_THAT(outcome, IsOk());
    EXPECT_EQ(outcome->reason, StopReason::kHang);
    EXPECT_EQ(outcome->exit_code, kTimeout);
    EXPECT_GE(took_, absl::Seconds(1));
    EXPECT_LT(took_, absl::Seconds(10));
    ASSERT_EQ(recorder_.hanging.size(), 2);
    EXPECT_FALSE(recorder_.hanging[0].behind);
    EXPECT_TRUE(recorder_.hanging[1].behind);
    EXPECT_GE(recorder_.hanging[1].silent, absl::Milliseconds(500));
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_THAT(
          Log(rank, "stack.txt"),
          HasSubstr(absl::StrCat("thread ", outcome->workers[rank].pid, " ")));
      EXPECT_EQ(outcome->workers[rank].wait_status, Signal(SIGKILL));
    }
  }
  EXPECT_EQ(recorder_.hanging[1].state, "stopped");
}

TEST_F(SuperviseTest, WhoHandlesSigquitWritesItsStackBeforeItIsKilled) {
  options_.hang_timeout = absl::Seconds(1);
  const auto outcome = Run(
      {"trap 'echo mine >>$MIR_STACK_FILE; say {\\\"event\\\":\\\"stacks\\\"}' "
       "QUIT; hello; ready; while :; do sleep 0.1; done"});
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->reason, StopReason::kHang);
  EXPECT_THAT(Log(0, "stack.txt"), EndsWith("mine\n"));
  EXPECT_LT(took_, absl::Seconds(9));  // It did not wait for more.
}

TEST_F(SuperviseTest, WhoBeatsDoesNotHang) {
  options_.hang_timeout = absl::Seconds(2);
  const auto outcome =
      Run({"hello; ready; for i in 1 2 3 4 5 6 7 8 9 10; do beat $i train; "
           "sleep 0.4; done; bye",
           // Not ready, so the init timeout is the one that counts.
           "exec sleep 3"});
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->reason, StopReason::kNone);
  EXPECT_GE(took_, absl::Seconds(4));
}

TEST_F(SuperviseTest, TheObserverMayStopIt) {
  recorder_.stop_at = absl::Now() + absl::Milliseconds(300);
  const auto outcome =
      Run({"trap 'bye; exit 75' TERM; hello; while :; do "
           "sleep 0.05; done"});
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->reason, StopReason::kElsewhere);
  EXPECT_EQ(outcome->exit_code, kStopped);
}

TEST_F(SuperviseTest, AskedHowFarTheyAreItTells) {
  const auto outcome = Run({absl::StrCat(
      "hello; beat 3 train; sleep 0.3; kill -USR2 ", getpid(), "; sleep 0.3")});
  ASSERT_THAT(outcome, IsOk());
  ASSERT_EQ(recorder_.asked.size(), 1);
  EXPECT_EQ(recorder_.asked[0].step, 3);
  EXPECT_GE(recorder_.asked[0].silent, absl::Milliseconds(200));
}

TEST_F(SuperviseTest, InterruptedOnceWorkersSave) {
  const auto outcome =
      Run({"trap 'sleep 0.5; exit 75' TERM; sleep 0.3; kill -INT $PPID; while "
           ":; do sleep "
           "0.1; done",
           "trap 'exit 75' TERM; while :; do sleep 0.1; done"});
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->reason, StopReason::kSignal);
  EXPECT_EQ(outcome->signal, SIGINT);
  EXPECT_EQ(outcome->exit_code, kStopped);
  EXPECT_THAT(recorder_.stops, ElementsAre(ElementsAre(0, 1)));
}

TEST_F(SuperviseTest, TheSameSignalAtOnceIsOneRequest) {
  const auto outcome =
      Run({"trap 'sleep 0.5; exit 75' TERM; kill -TERM $PPID; sleep 0.1; kill "
           "-TERM $PPID; while :; do sleep 0.1; done"});
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->exit_code, kStopped);
  EXPECT_EQ(recorder_.stops.size(), 1);
}

TEST_F(SuperviseTest, InterruptedTwiceShortensTheGrace) {
  options_.grace = absl::Seconds(100);
  options_.kill_wait = absl::Milliseconds(300);
  const auto outcome =
      Run({"trap '' TERM; kill -INT $PPID; sleep 0.5; kill -INT $PPID; while "
           ":; do sleep 0.1; done"});
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->exit_code, 130);
  EXPECT_EQ(recorder_.stops.size(), 2);
  EXPECT_EQ(recorder_.kills.size(), 1);
  EXPECT_LT(took_, absl::Seconds(20));
}

TEST_F(SuperviseTest, InterruptedThreeTimesKills) {
  options_.grace = absl::Seconds(100);
  options_.kill_wait = absl::Seconds(100);
  const auto outcome =
      Run({"trap '' TERM; kill -INT $PPID; sleep 0.5; kill -INT $PPID; sleep "
           "0.5; kill -INT $PPID; while :; do sleep 0.1; done"});
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->exit_code, 130);
  EXPECT_LT(took_, absl::Seconds(20));
}

TEST_F(SuperviseTest, ASchedulersWarningAsksOnce) {
  const auto outcome =
      Run({"trap 'sleep 0.8; exit 75' TERM; kill -USR1 $PPID; sleep 0.4; kill "
           "-USR1 $PPID; while :; do sleep 0.1; done"});
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->exit_code, kStopped);
  EXPECT_EQ(recorder_.stops.size(), 1);
}

TEST_F(SuperviseTest, ASuspendedJobSuspendsItsWorkersAndItsClock) {
  options_.timeout = absl::Seconds(2);
  // A helper outside the workers' groups suspends this process for a while.
  const pid_t parent = getpid();
  const pid_t helper = fork();
  if (helper == 0) {
    usleep(300'000);
    kill(parent, SIGTSTP);
    sleep(3);
    kill(parent, SIGCONT);
    _exit(0);
  }
  const auto outcome = Run(
      {"i=0; while [ $i -lt 10 ]; do i=$((i+1)); echo $i; sleep 0.1; done"});
  waitpid(helper, nullptr, 0);
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->exit_code, 0);
  EXPECT_GE(took_, absl::Seconds(3));
}

TEST_F(SuperviseTest, ProcessesThatAWorkerLeavesAreEnded) {
  const auto outcome = Run({"sleep 100 & echo $!"});
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->exit_code, 0);
  EXPECT_TRUE(outcome->workers[0].left_processes);
  const pid_t left = std::stoi(recorder_.output[{0, Stream::kStdout}]);
  EXPECT_NE(kill(left, 0), 0);
  EXPECT_LT(took_, absl::Seconds(20));
}

TEST_F(SuperviseTest, OutputWaitsWhereItIsNotTaken) {
  recorder_.takes = false;
  options_.timeout = absl::Milliseconds(500);
  const auto outcome = Run({"exec yes"});
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->exit_code, kTimeout);
  EXPECT_LE((recorder_.output[{0, Stream::kStdout}].size()), 1 << 17);
}

TEST_F(SuperviseTest, AFullDiskDoesNotStopAnything) {
  std::filesystem::create_directories(Folder(0));
  std::filesystem::remove(Folder(0) + "/stdout.log");
  std::filesystem::create_symlink("/dev/full", Folder(0) + "/stdout.log");
  const auto outcome = Run({"echo a; sleep 0.1; echo b"});
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->exit_code, 0);
  EXPECT_EQ((recorder_.output[{0, Stream::kStdout}]), "a\nb\n");
  EXPECT_THAT(recorder_.log_faults,
              ElementsAre(HasSubstr("stdout.log: No space left on device")));
}

TEST_F(SuperviseTest, FaultsAtTheStartLeaveNothingRunning) {
  WorkerSpec good;
  good.command.argv = {"/bin/sleep", "100"};
  good.log_folder = Folder(0);
  std::filesystem::create_directories(good.log_folder);
  WorkerSpec bad = good;
  bad.command.argv = {"/nonexistent"};
  EXPECT_THAT(Supervise({good, bad}, options_, &recorder_),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent")));
  bad = good;
  bad.log_folder = "/nonexistent";
  EXPECT_THAT(Supervise({good, bad}, options_, &recorder_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("cannot write /nonexistent/stdout.log: No "
                                 "such file or directory")));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

}  // namespace
}  // namespace mir::launch
