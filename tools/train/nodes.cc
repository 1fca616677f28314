#include "tools/train/nodes.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "mir/base/status_macros.h"
#include "mir/launch/exit_codes.h"

namespace mir::tools {
namespace {

using nlohmann::json;

constexpr absl::Duration kBeat = absl::Seconds(2);
constexpr absl::Duration kLook = absl::Milliseconds(50);

std::string NodeList(const std::vector<int>& nodes) {
  return absl::StrCat(nodes.size() == 1 ? "node " : "nodes ",
                      absl::StrJoin(nodes, ", "));
}

json ToJson(const NodeEnd& end) {
  return {{"node", end.node},
          {"exit_code", end.exit_code},
          {"kind", static_cast<int>(end.kind)},
          {"elsewhere", end.elsewhere},
          {"cause", end.cause}};
}

NodeEnd EndFrom(const json& message) {
  NodeEnd end;
  end.node = message.value("node", 0);
  end.exit_code = message.value("exit_code", int{launch::kOther});
  end.kind = static_cast<FailureKind>(message.value("kind", 0));
  end.elsewhere = message.value("elsewhere", false);
  end.cause = message.value("cause", "");
  return end;
}

void SetUp(int socket) {
  const int yes = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

// -1 with errno set where nobody accepts.
launch::UniqueFd TryToConnect(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found) !=
      0) {
    errno = EHOSTUNREACH;
    return launch::UniqueFd();
  }
  launch::UniqueFd connected;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    launch::UniqueFd fd(socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (fd.open() && connect(fd.get(), a->ai_addr, a->ai_addrlen) == 0) {
      connected = std::move(fd);
      break;
    }
  }
  freeaddrinfo(found);
  return connected;
}

}  // namespace

NodeEnd Verdict(const std::vector<NodeEnd>& ends) {
  const auto first = [&](const auto& is) -> const NodeEnd* {
    const auto found = std::find_if(ends.begin(), ends.end(), is);
    return found == ends.end() ? nullptr : &*found;
  };
  const auto clean = [](const NodeEnd& end) {
    return end.exit_code == launch::kOk || end.exit_code == launch::kStopped;
  };
  for (const NodeEnd* end :
       {first([&](const NodeEnd& end) {
          return !end.elsewhere && !clean(end) &&
                 end.exit_code != launch::kPeer;
        }),
        first([&](const NodeEnd& end) {
          return !end.elsewhere && end.exit_code == launch::kPeer;
        }),
        first([&](const NodeEnd& end) { return !clean(end); }),
        first([](const NodeEnd& end) {
          return end.exit_code == launch::kStopped;
        })}) {
    if (end != nullptr) return *end;
  }
  return ends.front();
}

absl::StatusOr<std::unique_ptr<Nodes>> Nodes::Meet(const Self& self,
                                                   const std::string& host,
                                                   int port,
                                                   absl::Duration timeout,
                                                   absl::Duration silence) {
  std::unique_ptr<Nodes> nodes(new Nodes(self, silence));
  const absl::Time deadline = absl::Now() + timeout;
  if (self.node == 0) {
    MIR_RETURN_IF_ERROR(nodes->Listen(port));
    MIR_RETURN_IF_ERROR(nodes->AcceptAll(port, deadline));
  } else {
    MIR_RETURN_IF_ERROR(nodes->Connect(host, port, deadline));
  }
  return nodes;
}

absl::Status Nodes::Listen(int port) {
  listener_ = launch::UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(port);
  if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address),
           sizeof(address)) != 0 ||
      listen(listener_.get(), SOMAXCONN) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen on port ", port,
                     ", where the nodes' runners meet (one "
                     "above --master-port): ",
                     std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status Nodes::AcceptAll(int port, absl::Time deadline) {
  while (true) {
    std::vector<int> missing;
    for (int node = 1; node < self_.nodes; ++node) {
      if (std::none_of(peers_.begin(), peers_.end(), [&](const auto& peer) {
            return peer->node == node && peer->socket.open();
          })) {
        missing.push_back(node);
      }
    }
    if (missing.empty()) break;
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          NodeList(missing), " of ", self_.nodes,
          missing.size() == 1 ? " was" : " were",
          " not there within --init-timeout; start the runner there with "
          "--node-rank, and let its --master-addr lead to port ",
          port, " of this machine"));
    }
    std::vector<pollfd> fds = {{listener_.get(), POLLIN, 0}};
    AddPollFds(&fds);
    poll(fds.data(), fds.size(),
         static_cast<int>(absl::ToInt64Milliseconds(kLook)));
    if (fds[0].revents != 0) {
      launch::UniqueFd accepted(
          accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (accepted.open()) {
        SetUp(accepted.get());
        peers_.push_back(std::make_unique<Peer>());
        peers_.back()->socket = std::move(accepted);
        peers_.back()->heard = absl::Now();
      }
    }
    for (size_t i = 0; i < peers_.size(); ++i) Read(peers_[i].get());
    if (!words_.empty()) {  // Somebody does not fit.
      return absl::FailedPreconditionError(
          words_.front()["refused"].get<std::string>());
    }
  }
  peers_.erase(std::remove_if(peers_.begin(), peers_.end(),
                              [](const auto& peer) {
                                return peer->node < 0 || !peer->socket.open();
                              }),
               peers_.end());
  std::sort(peers_.begin(), peers_.end(),
            [](const auto& a, const auto& b) { return a->node < b->node; });
  met_ = true;
  return absl::OkStatus();
}

absl::Status Nodes::Connect(const std::string& host, int port,
                            absl::Time deadline) {
  while (true) {
    launch::UniqueFd socket = TryToConnect(host, port);
    if (socket.open()) {
      SetUp(socket.get());
      peers_.push_back(std::make_unique<Peer>());
      peers_.back()->node = 0;
      peers_.back()->socket = std::move(socket);
      peers_.back()->heard = absl::Now();
      Send(peers_.back().get(), {{"say", "hello"},
                                 {"node", self_.node},
                                 {"nodes", self_.nodes},
                                 {"processes", self_.processes},
                                 {"command", self_.command}});
      met_ = true;
      return absl::OkStatus();
    }
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "node 0 was not there within --init-timeout: nobody accepts "
          "connections at ",
          host, ":", port, " (", std::strerror(errno),
          "); start its runner with --node-rank 0 and the same "
          "--master-port"));
    }
    absl::SleepFor(kLook);
  }
}

// On node 0: whether a node fits to it.
absl::Status Nodes::Greet(Peer* peer, const json& hello) {
  peer->node = hello.value("node", -1);
  peer->processes = hello.value("processes", 0);
  const int nodes = hello.value("nodes", 0);
  const std::string command = hello.value("command", "");
  if (nodes != self_.nodes) {
    return absl::FailedPreconditionError(
        absl::StrCat("the nodes disagree on their number: node 0 has --nnodes ",
                     self_.nodes, ", node ", peer->node, " has ", nodes));
  }
  if (peer->node < 1 || peer->node >= self_.nodes || peer->processes < 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("a runner came with --node-rank ", peer->node,
                     "; wanted 1 to ", self_.nodes - 1));
  }
  for (const auto& other : peers_) {
    if (other.get() != peer && other->node == peer->node &&
        other->socket.open()) {
      return absl::FailedPreconditionError(
          absl::StrCat("two runners came with --node-rank ", peer->node));
    }
  }
  if (command != self_.command) {
    return absl::FailedPreconditionError(
        absl::StrCat("the nodes were started differently: node 0 runs '",
                     self_.command, "', node ", peer->node, " runs '", command,
                     "'; start all with the same options"));
  }
  return absl::OkStatus();
}

void Nodes::Send(Peer* peer, const json& message) {
  if (!peer->socket.open()) return;
  const std::string line =
      message.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  // Lines are short and few: what does not fit into the socket's buffer is for
  // a peer that is lost.
  const ssize_t sent = send(peer->socket.get(), line.data(), line.size(),
                            MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(line.size())) {
    Lose(peer, "its runner does not take messages any more");
  }
}

void Nodes::SendAll(const json& message) {
  for (const auto& peer : peers_) Send(peer.get(), message);
}

void Nodes::Lose(Peer* peer, const std::string& why) {
  if (!peer->socket.open()) return;
  peer->socket.Reset();
  if (!met_) return;  // It may come again.
  const std::string lost = absl::StrCat("node ", peer->node, " is lost: ", why);
  if (!peer->ended) {
    peer->ended = true;
    peer->end.node = peer->node;
    peer->end.exit_code = launch::kPeer;
    peer->end.kind = FailureKind::kNone;  // Nobody there to start it again.
    peer->end.cause = lost;
  }
  if (stop_why_.empty()) stop_why_ = lost;
  SendAll({{"say", "stop"}, {"why", lost}});
}

void Nodes::Read(Peer* peer) {
  char buffer[1 << 14];
  while (peer->socket.open()) {
    const ssize_t got =
        recv(peer->socket.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got == -1 && errno == EINTR) continue;
    if (got == -1 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) {
      Lose(peer, "its runner is gone");
      return;
    }
    peer->heard = absl::Now();
    peer->lines.Add(absl::string_view(buffer, got),
                    [&](absl::string_view text, launch::LineSplitter::End) {
                      const json message =
                          json::parse(text.begin(), text.end(), nullptr,
                                      /*allow_exceptions=*/false);
                      if (message.is_object()) Take(peer, message);
                    });
  }
}

void Nodes::Take(Peer* peer, const json& message) {
  const std::string say = message.value("say", "");
  if (say == "hello" && self_.node == 0) {
    if (const absl::Status fits = Greet(peer, message); !fits.ok()) {
      const json refused = {{"say", "refused"},
                            {"refused", std::string(fits.message())}};
      SendAll(refused);
      words_.push_back(refused);
    }
  } else if (say == "stop") {
    if (stop_why_.empty()) stop_why_ = message.value("why", "it was told to");
    if (self_.node == 0) SendAll(message);
  } else if (say == "ended") {
    peer->ended = true;
    peer->end = EndFrom(message);
    peer->end.node = peer->node;
  } else if (say == "begin" || say == "done" || say == "refused") {
    // What was said before is over; a stop may follow in the same moment.
    if (say == "begin") {
      stop_why_.clear();
      stop_said_ = false;
    }
    words_.push_back(message);
  }
}

void Nodes::AddPollFds(std::vector<pollfd>* fds) const {
  for (const auto& peer : peers_) {
    if (peer->socket.open()) fds->push_back({peer->socket.get(), POLLIN, 0});
  }
}

void Nodes::Step() {
  const absl::Time now = absl::Now();
  for (const auto& peer : peers_) Read(peer.get());
  if (now - beat_ >= kBeat) {
    beat_ = now;
    SendAll({{"say", "beat"}});
  }
  for (const auto& peer : peers_) {
    if (now - peer->heard > silence_) {
      Lose(peer.get(), absl::StrCat("nothing was heard of it for ",
                                    absl::FormatDuration(silence_)));
    }
  }
}

void Nodes::WaitAndStep(absl::Duration most) {
  std::vector<pollfd> fds;
  AddPollFds(&fds);
  poll(fds.data(), fds.size(),
       static_cast<int>(absl::ToInt64Milliseconds(std::min(most, kLook))));
  Step();
}

bool Nodes::complete() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const auto& peer) { return peer->socket.open(); });
}

void Nodes::TellStop(const std::string& why) {
  if (std::exchange(stop_said_, true)) return;
  if (stop_why_.empty()) stop_why_ = why;
  SendAll(
      {{"say", "stop"}, {"why", absl::StrCat("node ", self_.node, ": ", why)}});
}

absl::StatusOr<Nodes::Attempt> Nodes::Begin(Attempt attempt) {
  stop_why_.clear();
  stop_said_ = false;
  attempt.world = self_.processes;
  for (const auto& peer : peers_) attempt.world += peer->processes;
  attempt.first_rank = 0;
  int first = self_.processes;
  for (const auto& peer : peers_) {
    peer->ended = false;
    Send(peer.get(), {{"say", "begin"},
                      {"attempt", attempt.number},
                      {"restarts", attempt.restarts},
                      {"resume", attempt.resume},
                      {"first_rank", first},
                      {"world", attempt.world}});
    first += peer->processes;
  }
  for (const auto& peer : peers_) {
    if (peer->socket.open()) continue;
    return absl::UnavailableError(
        absl::StrCat("node ", peer->node, " is lost, so nothing can begin"));
  }
  return attempt;
}

void Nodes::Finish(const NodeEnd& verdict) {
  json message = ToJson(verdict);
  message["say"] = "done";
  SendAll(message);
}

absl::StatusOr<Nodes::Word> Nodes::AwaitWord() {
  while (words_.empty()) {
    if (!peers_.front()->socket.open()) {
      return absl::UnavailableError(stop_why_);
    }
    WaitAndStep(kBeat);
  }
  const json message = words_.front();
  words_.erase(words_.begin());
  if (message.contains("refused")) {
    return absl::FailedPreconditionError(message["refused"].get<std::string>());
  }
  Word word;
  word.begins = message.value("say", "") == "begin";
  if (word.begins) {
    word.attempt.number = message.value("attempt", 0);
    word.attempt.restarts = message.value("restarts", 0);
    word.attempt.resume = message.value("resume", false);
    word.attempt.first_rank = message.value("first_rank", 0);
    word.attempt.world = message.value("world", 1);
  } else {
    word.verdict = EndFrom(message);
  }
  return word;
}

std::vector<NodeEnd> Nodes::Ended(const NodeEnd& own, absl::Duration patience) {
  std::vector<NodeEnd> ends = {own};
  json message = ToJson(own);
  message["say"] = "ended";
  if (self_.node != 0) {
    SendAll(message);
    return ends;
  }
  const absl::Time deadline = absl::Now() + patience;
  const auto waiting = [&] {
    return std::any_of(peers_.begin(), peers_.end(),
                       [](const auto& peer) { return !peer->ended; });
  };
  while (waiting() && absl::Now() < deadline) WaitAndStep(kBeat);
  for (const auto& peer : peers_) {
    if (!peer->ended) Lose(peer.get(), "its processes do not end");
    ends.push_back(peer->end);
  }
  return ends;
}

}  // namespace mir::tools
