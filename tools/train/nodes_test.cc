#include "tools/train/nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "mir/launch/exit_codes.h"
#include "mir/launch/reserved_port.h"
#include "mir/testing/status_matchers.h"

namespace mir::tools {
namespace {

using ::mir::testing::IsOk;
using ::mir::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

int FreePort() {
  return launch::ReservedPort::Bind(0, launch::ReservedPort::Use::kHandOver)
      ->port();
}

NodeEnd End(int node, int exit_code, bool elsewhere = false) {
  NodeEnd end;
  end.node = node;
  end.exit_code = exit_code;
  end.elsewhere = elsewhere;
  return end;
}

TEST(VerdictTest, TheFirstCauseCounts) {
  EXPECT_EQ(Verdict({End(0, 0), End(1, 0)}).exit_code, 0);
  EXPECT_EQ(Verdict({End(0, 0), End(1, 75)}).exit_code, 75);
  EXPECT_EQ(Verdict({End(0, 20), End(1, 11), End(2, 1)}).node, 1);
  EXPECT_EQ(Verdict({End(0, 1, /*elsewhere=*/true), End(1, 20)}).node, 1);
  EXPECT_EQ(Verdict({End(0, 75), End(1, 1, true)}).node, 1);
}

// Two or three nodes, each on a thread of its own.
class NodesTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Nodes>> Meet(
      int node, int nodes = 2, const std::string& command = "train",
      absl::Duration timeout = absl::Seconds(20),
      absl::Duration silence = absl::Seconds(20)) {
    Nodes::Self self;
    self.node = node;
    self.nodes = nodes;
    self.processes = node + 1;
    self.command = command;
    return Nodes::Meet(self, "127.0.0.1", port_, timeout, silence);
  }

  const int port_ = FreePort();
};

TEST_F(NodesTest, AttemptsAndEndsAreTheSameForAll) {
  const auto other = [this](int node) {
    const auto nodes = Meet(node, 3);
    ASSERT_THAT(nodes, IsOk());
    for (int attempt = 0; attempt < 2; ++attempt) {
      const auto word = (*nodes)->AwaitWord();
      ASSERT_THAT(word, IsOk());
      ASSERT_TRUE(word->begins);
      EXPECT_EQ(word->attempt.number, 5 + attempt);
      EXPECT_EQ(word->attempt.restarts, attempt);
      EXPECT_EQ(word->attempt.resume, attempt == 1);
      EXPECT_EQ(word->attempt.first_rank, node == 1 ? 1 : 3);
      EXPECT_EQ(word->attempt.world, 6);
      EXPECT_FALSE((*nodes)->stop_told());
      (*nodes)->Ended(End(node, attempt == 0 && node == 2 ? 11 : 0),
                      absl::Seconds(20));
    }
    const auto word = (*nodes)->AwaitWord();
    ASSERT_THAT(word, IsOk());
    EXPECT_FALSE(word->begins);
    EXPECT_EQ(word->verdict.exit_code, 75);
    EXPECT_EQ(word->verdict.cause, "why");
  };
  std::thread one(other, 1);
  std::thread two(other, 2);
  const auto nodes = Meet(0, 3);
  ASSERT_THAT(nodes, IsOk());
  for (int attempt = 0; attempt < 2; ++attempt) {
    Nodes::Attempt begin;
    begin.number = 5 + attempt;
    begin.restarts = attempt;
    begin.resume = attempt == 1;
    const auto own = (*nodes)->Begin(begin);
    ASSERT_THAT(own, IsOk());
    EXPECT_EQ(own->first_rank, 0);
    EXPECT_EQ(own->world, 6);
    const auto ends = (*nodes)->Ended(End(0, 0), absl::Seconds(20));
    ASSERT_EQ(ends.size(), 3);
    EXPECT_EQ(Verdict(ends).exit_code, attempt == 0 ? 11 : 0);
    EXPECT_TRUE((*nodes)->complete());
  }
  NodeEnd verdict = End(0, 75);
  verdict.cause = "why";
  (*nodes)->Finish(verdict);
  one.join();
  two.join();
}

TEST_F(NodesTest, AFailureOnOneStopsTheOthers) {
  std::thread one([this] {
    const auto nodes = Meet(1, 3);
    ASSERT_THAT(nodes, IsOk());
    ASSERT_THAT((*nodes)->AwaitWord(), IsOk());
    (*nodes)->TellStop("rank 2 fell");
    EXPECT_FALSE((*nodes)->AwaitWord()->begins);
  });
  std::thread two([this] {
    const auto nodes = Meet(2, 3);
    ASSERT_THAT(nodes, IsOk());
    ASSERT_THAT((*nodes)->AwaitWord(), IsOk());
    while (!(*nodes)->stop_told()) {
      (*nodes)->Step();
      absl::SleepFor(absl::Milliseconds(5));
    }
    EXPECT_EQ((*nodes)->stop_why(), "node 1: rank 2 fell");
    EXPECT_FALSE((*nodes)->AwaitWord()->begins);
  });
  const auto nodes = Meet(0, 3);
  ASSERT_THAT(nodes, IsOk());
  ASSERT_THAT((*nodes)->Begin({}), IsOk());
  while (!(*nodes)->stop_told()) {
    (*nodes)->Step();
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_EQ((*nodes)->stop_why(), "node 1: rank 2 fell");
  (*nodes)->Finish(End(1, 11));
  one.join();
  two.join();
}

TEST_F(NodesTest, AStopThatComesWithTheBeginIsHeard) {
  std::thread one([this] {
    const auto nodes = Meet(1);
    ASSERT_THAT(nodes, IsOk());
    absl::SleepFor(absl::Milliseconds(200));  // Both words wait by then.
    EXPECT_TRUE((*nodes)->AwaitWord()->begins);
    EXPECT_EQ((*nodes)->stop_why(), "node 0: rank 0 fell");
    EXPECT_FALSE((*nodes)->AwaitWord()->begins);
  });
  const auto nodes = Meet(0);
  ASSERT_THAT(nodes, IsOk());
  ASSERT_THAT((*nodes)->Begin({}), IsOk());
  (*nodes)->TellStop("rank 0 fell");
  (*nodes)->Finish(End(0, 11));
  one.join();
}

TEST_F(NodesTest, ARunnerThatIsGoneIsLost) {
  std::thread one([this] { ASSERT_THAT(Meet(1), IsOk()); });
  const auto nodes = Meet(0);
  ASSERT_THAT(nodes, IsOk());
  one.join();
  const auto ends = (*nodes)->Ended(End(0, 0), absl::Seconds(20));
  ASSERT_EQ(ends.size(), 2);
  EXPECT_EQ(ends[1].exit_code, launch::kPeer);
  EXPECT_EQ(ends[1].cause, "node 1 is lost: its runner is gone");
  EXPECT_FALSE((*nodes)->complete());
  EXPECT_EQ((*nodes)->Begin({}).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(NodesTest, ASilentNodeIsLost) {
  std::thread one([this] {
    const auto nodes = Meet(1);
    ASSERT_THAT(nodes, IsOk());
    absl::SleepFor(absl::Seconds(3));  // As if it were stopped.
  });
  const auto nodes = Meet(0, 2, "train", absl::Seconds(20), absl::Seconds(1));
  ASSERT_THAT(nodes, IsOk());
  while (!(*nodes)->stop_told()) {
    (*nodes)->Step();
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_EQ((*nodes)->stop_why(),
            "node 1 is lost: nothing was heard of it for 1s");
  one.join();
}

TEST_F(NodesTest, NodesThatDoNotFitAreShownBoth) {
  struct Case {
    int node;
    int nodes;
    const char* command;
    const char* message;
  };
  for (const Case& c :
       {Case{1, 3, "train", "node 0 has --nnodes 2, node 1 has 3"},
        Case{1, 2, "other", "node 0 runs 'train', node 1 runs 'other'"},
        Case{5, 2, "train", "--node-rank 5; wanted 1 to 1"}}) {
    std::thread one([&] {
      const auto nodes = Meet(c.node, c.nodes, c.command);
      ASSERT_THAT(nodes, IsOk());
      EXPECT_THAT((*nodes)->AwaitWord().status(),
                  StatusIs(absl::StatusCode::kFailedPrecondition,
                           HasSubstr(c.message)));
    });
    EXPECT_THAT(
        Meet(0).status(),
        StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(c.message)));
    one.join();
  }
}

TEST_F(NodesTest, WhoIsMissingIsNamed) {
  EXPECT_THAT(
      Meet(0, 3, "train", absl::Milliseconds(300)).status(),
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               AllOf(HasSubstr("nodes 1, 2 of 3"), HasSubstr("--node-rank"))));
  EXPECT_THAT(Meet(1, 2, "train", absl::Milliseconds(300)).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("nobody accepts connections at 127.0.0.1")));
  const auto held =
      launch::ReservedPort::Bind(port_, launch::ReservedPort::Use::kHandOver);
  ASSERT_THAT(held, IsOk());
  EXPECT_THAT(Meet(0).status(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         HasSubstr("cannot listen on port")));
}

}  // namespace
}  // namespace mir::tools
