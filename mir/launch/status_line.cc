#include "mir/launch/status_line.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mir/launch/worker_contract.h"

namespace mir::launch {
namespace {

constexpr int kPatienceMilliseconds = 1000;

int StatusFd(const Env& env) {
  const absl::StatusOr<int64_t> fd =
      GetInt(env, "MIR_STATUS_FD", 0, std::numeric_limits<int>::max());
  if (!fd.ok() || fcntl(*fd, F_GETFD) == -1) return -1;
  return *fd;
}

// Keeps a write to a pipe without a reader from raising SIGPIPE, in this thread
// only.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  ~NoSigpipe() {
    if (!was_pending_) {
      const timespec now = {0, 0};
      while (sigtimedwait(&sigpipe_, nullptr, &now) == -1 && errno == EINTR) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t sigpipe_;
  sigset_t before_;
  bool was_pending_;
};

// Lines up to PIPE_BUF are written whole or not at all; longer ones, and those
// where `patient`, wait for room.
void Write(int fd, const nlohmann::json& json, bool patient) {
  if (fd < 0) return;
  const std::string line = json.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/false,
                                     nlohmann::json::error_handler_t::replace) +
                           "\n";
  const NoSigpipe no_sigpipe;
  absl::string_view rest = line;
  while (!rest.empty()) {
    pollfd ready = {fd, POLLOUT, 0};
    const bool begun = rest.size() < line.size();
    if (poll(&ready, 1, patient || begun ? kPatienceMilliseconds : 0) == 0) {
      return;
    }
    const ssize_t written = write(fd, rest.data(), rest.size());
    if (written > 0) {
      rest.remove_prefix(written);
    } else if (errno != EINTR && errno != EAGAIN) {
      return;
    }
  }
}

absl::Status Malformed(absl::string_view line) {
  return absl::InvalidArgumentError(
      absl::StrCat("not a status line: ", line.substr(0, 200)));
}

}  // namespace

absl::StatusOr<StatusLine> ParseStatusLine(absl::string_view line) {
  const nlohmann::json json = nlohmann::json::parse(
      line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Malformed(line);
  StatusLine parsed;
  try {
    const std::string event = json.at("event").get<std::string>();
    if (event == "hello") {
      parsed.event = StatusLine::Event::kHello;
      parsed.rank = json.at("rank").get<int>();
      parsed.pid = json.value("pid", int64_t{0});
      parsed.contract = json.value("contract", "");
    } else if (event == "ready") {
      parsed.event = StatusLine::Event::kReady;
    } else if (event == "beat") {
      parsed.event = StatusLine::Event::kBeat;
      parsed.step = json.at("step").get<int64_t>();
      parsed.phase = json.value("phase", "");
    } else if (event == "checkpoint") {
      parsed.event = StatusLine::Event::kCheckpoint;
      parsed.path = json.at("path").get<std::string>();
      parsed.step = json.at("step").get<int64_t>();
    } else if (event == "stacks") {
      parsed.event = StatusLine::Event::kStacks;
    } else if (event == "bye") {
      parsed.event = StatusLine::Event::kBye;
      parsed.code = json.at("code").get<int>();
    } else {
      return Malformed(line);
    }
  } catch (const nlohmann::json::exception&) {
    return Malformed(line);
  }
  return parsed;
}

StatusWriter::StatusWriter(int fd) : fd_(fd) {}
StatusWriter::StatusWriter(const Env& env) : fd_(StatusFd(env)) {}

void StatusWriter::Hello(int rank) const {
  Write(fd_,
        {{"event", "hello"},
         {"rank", rank},
         {"pid", getpid()},
         {"contract", std::string(kWorkerContract)}},
        /*patient=*/true);
}

void StatusWriter::Ready() const {
  Write(fd_, {{"event", "ready"}}, /*patient=*/true);
}

void StatusWriter::Beat(int64_t step, absl::string_view phase) const {
  Write(fd_, {{"event", "beat"}, {"step", step}, {"phase", std::string(phase)}},
        /*patient=*/false);
}

void StatusWriter::Checkpoint(absl::string_view path, int64_t step) const {
  Write(fd_,
        {{"event", "checkpoint"}, {"path", std::string(path)}, {"step", step}},
        /*patient=*/true);
}

void StatusWriter::Stacks() const {
  Write(fd_, {{"event", "stacks"}}, /*patient=*/true);
}

void StatusWriter::Bye(int code) const {
  Write(fd_, {{"event", "bye"}, {"code", code}}, /*patient=*/true);
}

}  // namespace mir::launch
