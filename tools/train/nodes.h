#ifndef MIR_TOOLS_TRAIN_NODES_H_
#define MIR_TOOLS_TRAIN_NODES_H_

#include <poll.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "mir/launch/line_splitter.h"
#include "mir/launch/spawn.h"
#include "tools/train/restarts.h"

namespace mir::tools {

// How the processes of one node ended.
struct NodeEnd {
  int node = 0;
  int exit_code = 0;
  FailureKind kind = FailureKind::kNone;
  bool elsewhere = false;  // They were stopped because of another node.
  std::string cause;
};

// The end that the whole run has: the first failure of its own that is more
// than the loss of a peer; else the first loss of a peer; else a stop after a
// checkpoint where any node had one.
NodeEnd Verdict(const std::vector<NodeEnd>& ends);

// The runners of a run on several nodes, one on each: node 0 leads, the others
// keep one connection to it. It carries the start of each attempt, so that
// ranks and counts never differ between nodes; a failure anywhere, which stops
// all; how each node ended; and a beat both ways every two seconds. A node that
// says nothing for `silence`, or whose runner is gone, is lost, which stops all
// too, on either side.
//
// JSON lines over TCP; not encrypted, as the store and gloo are not. Not
// thread-safe.
class Nodes {
 public:
  struct Self {
    int node = 0;
    int nodes = 1;
    int processes = 1;    // Of this node.
    std::string command;  // What must be the same on all nodes.
  };

  // Node 0 listens on `port`, the others connect to host:port and try again
  // until somebody does. Returns when all nodes are there.
  //
  // FAILED_PRECONDITION where two nodes disagree on the number of nodes or the
  // command (both sides are shown), or have the same number, or the port is in
  // use; DEADLINE_EXCEEDED, with the nodes that are missing, after `timeout`.
  static absl::StatusOr<std::unique_ptr<Nodes>> Meet(
      const Self& self, const std::string& host, int port,
      absl::Duration timeout, absl::Duration silence = absl::Seconds(20));

  // What all nodes know of an attempt.
  struct Attempt {
    int number = 0;
    int restarts = 0;
    bool resume = false;
    int first_rank = 0;  // Of this node.
    int world = 1;
  };

  // Node 0 alone: starts an attempt on all nodes, with its number, restarts and
  // resume, and returns its own.
  absl::StatusOr<Attempt> Begin(Attempt attempt);
  // Node 0 alone: ends the run on all nodes.
  void Finish(const NodeEnd& verdict);

  // The others: what node 0 said, a new attempt or the end of the run.
  struct Word {
    bool begins = false;
    Attempt attempt;
    NodeEnd verdict;
  };
  // UNAVAILABLE where node 0 is lost.
  absl::StatusOr<Word> AwaitWord();

  // While the processes run: what to wait for, and to be called after it.
  void AddPollFds(std::vector<pollfd>* fds) const;
  void Step();
  // Whether processes elsewhere failed, or a node is lost, and which.
  // Whether no node is lost.
  bool complete() const;
  bool stop_told() const { return !stop_why_.empty(); }
  const std::string& stop_why() const { return stop_why_; }
  // Tells the others to stop, once.
  void TellStop(const std::string& why);

  // Tells how this node's processes ended. Node 0 gets how all did, those of
  // lost nodes too, waiting up to `patience` for them.
  std::vector<NodeEnd> Ended(const NodeEnd& own, absl::Duration patience);

 private:
  struct Peer {
    int node = -1;
    int processes = 0;
    launch::UniqueFd socket;
    launch::LineSplitter lines{1 << 16};
    absl::Time heard;
    bool ended = false;
    NodeEnd end;
  };

  Nodes(const Self& self, absl::Duration silence)
      : self_(self), silence_(silence) {}

  absl::Status Listen(int port);
  absl::Status AcceptAll(int port, absl::Time deadline);
  absl::Status Greet(Peer* peer, const nlohmann::json& hello);
  absl::Status Connect(const std::string& host, int port, absl::Time deadline);
  void Send(Peer* peer, const nlohmann::json& message);
  void SendAll(const nlohmann::json& message);
  void Read(Peer* peer);
  void Take(Peer* peer, const nlohmann::json& message);
  void Lose(Peer* peer, const std::string& why);
  void WaitAndStep(absl::Duration most);

  const Self self_;
  const absl::Duration silence_;
  launch::UniqueFd listener_;
  std::vector<std::unique_ptr<Peer>> peers_;  // Of others: node 0 alone.
  absl::Time beat_ = absl::InfinitePast();
  std::string stop_why_;
  bool stop_said_ = false;
  bool met_ = false;
  std::vector<nlohmann::json> words_;  // Of node 0, not yet awaited.
};

}  // namespace mir::tools

#endif  // MIR_TOOLS_TRAIN_NODES_H_
