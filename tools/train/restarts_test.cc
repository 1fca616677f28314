#include "tools/train/restarts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "absl/status/status.h"
#include "mir/launch/exit_codes.h"
#include "mir/testing/status_matchers.h"

namespace mir::tools {
namespace {

using launch::Outcome;
using launch::StopReason;
using ::mir::testing::IsOkAndHolds;
using ::mir::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One rank that ended so, after a checkpoint at `step`.
Outcome End(int wait_status, int64_t step = -1,
            StopReason reason = StopReason::kFailure) {
  Outcome outcome;
  outcome.reason = reason;
  outcome.order = {0};
  outcome.workers.emplace_back();
  outcome.workers[0].ended = true;
  outcome.workers[0].wait_status = wait_status;
  outcome.workers[0].hello = outcome.workers[0].bye = true;
  outcome.workers[0].checkpoint_step = step;
  if (step >= 0) outcome.workers[0].checkpoint = "latest.pth";
  launch::Judge(&outcome);
  return outcome;
}
// Of a run on one node.
Restarts::Decision After(Restarts& restarts, const Outcome& outcome) {
  return restarts.After(outcome, FailureKindOf(outcome, /*ours=*/true));
}
constexpr int Exit(int code) { return code << 8; }

TEST(RestartsTest, KindsHaveNames) {
  EXPECT_THAT(
      ParseFailureKinds("peer,signal"),
      IsOkAndHolds(ElementsAre(FailureKind::kSignal, FailureKind::kPeer)));
  for (const char* wrong : {"", "signal,", "all"}) {
    EXPECT_THAT(ParseFailureKinds(wrong),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("preempt, hang, error")))
        << wrong;
  }
}

TEST(RestartsTest, KindsOfFailures) {
  const auto kind = [](const Outcome& outcome) {
    return FailureKindOf(outcome, /*ours=*/true);
  };
  EXPECT_EQ(kind(End(Exit(0))), FailureKind::kNone);
  EXPECT_EQ(kind(End(SIGSEGV)), FailureKind::kSignal);
  EXPECT_EQ(kind(End(Exit(launch::kPeer))), FailureKind::kPeer);
  EXPECT_EQ(kind(End(Exit(launch::kStopped), 1, StopReason::kNone)),
            FailureKind::kPreempt);
  EXPECT_EQ(kind(End(Exit(launch::kStopped), 1, StopReason::kSignal)),
            FailureKind::kNone);
  EXPECT_EQ(kind(End(SIGKILL, 1, StopReason::kHang)), FailureKind::kHang);
  EXPECT_EQ(kind(End(SIGKILL, 1, StopReason::kTimeout)), FailureKind::kNone);
  EXPECT_EQ(kind(End(SIGKILL, 1, StopReason::kInitTimeout)),
            FailureKind::kNone);
  EXPECT_EQ(kind(End(Exit(launch::kNumeric))), FailureKind::kError);
  EXPECT_EQ(kind(End(Exit(launch::kArguments))), FailureKind::kNone);
  EXPECT_EQ(FailureKindOf(End(Exit(launch::kArguments)), /*ours=*/false),
            FailureKind::kError);
  Outcome stuck = End(SIGSEGV);
  stuck.workers[0].ended = false;
  EXPECT_EQ(kind(stuck), FailureKind::kNone);
}

TEST(RestartsTest, AsManyAsAllowed) {
  Restarts restarts(2, {FailureKind::kSignal});
  EXPECT_TRUE(After(restarts, End(SIGSEGV, 10)).restart);
  EXPECT_TRUE(After(restarts, End(SIGSEGV, 20)).restart);
  EXPECT_EQ(restarts.count(), 2);
  EXPECT_EQ(restarts.checkpoint_step(), 20);
  EXPECT_EQ(restarts.checkpoint(), "latest.pth");
  const Restarts::Decision last = After(restarts, End(SIGSEGV, 30));
  EXPECT_FALSE(last.restart);
  EXPECT_EQ(last.why_not, "all 2 restarts are used up");
  EXPECT_EQ(restarts.checkpoint_step(), 30);
}

TEST(RestartsTest, NoneWithoutProgressTwice) {
  Restarts restarts(9, {FailureKind::kSignal});
  EXPECT_TRUE(After(restarts, End(SIGSEGV, 10)).restart);
  EXPECT_TRUE(After(restarts, End(SIGSEGV, 10)).restart);
  const Restarts::Decision last = After(restarts, End(SIGSEGV));
  EXPECT_FALSE(last.restart);
  EXPECT_THAT(last.why_not, HasSubstr("no newer checkpoint"));

  Restarts between(9, {FailureKind::kSignal});
  for (const int64_t step : {-1, 5, 5, 7, 7, 8}) {
    EXPECT_TRUE(After(between, End(SIGSEGV, step)).restart) << step;
  }
}

TEST(RestartsTest, ProgramsThatTellNothingAreNotHeldToProgress) {
  Restarts restarts(5, {FailureKind::kError});
  for (int i = 0; i < 5; ++i) {
    Outcome outcome = End(Exit(1));
    outcome.workers[0].hello = false;
    EXPECT_TRUE(After(restarts, outcome).restart);
  }
}

TEST(RestartsTest, OnlyAfterWhatIsNamed) {
  Restarts none(0, {FailureKind::kSignal});
  EXPECT_FALSE(After(none, End(SIGSEGV, 1)).restart);
  EXPECT_EQ(After(none, End(SIGSEGV, 2)).why_not, "");
  Restarts restarts(1, {FailureKind::kSignal});
  EXPECT_EQ(After(restarts, End(Exit(launch::kNumeric), 1)).why_not,
            "--restart-on does not name this kind of failure");
  EXPECT_EQ(After(restarts, End(Exit(0), 2)).why_not, "");
}

}  // namespace
}  // namespace mir::tools
