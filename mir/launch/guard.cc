#include "mir/launch/guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace mir::launch {
namespace {

// Closes all that this process was forked with, but `kept`: a pipe that it held
// would never end for its reader.
void CloseAllBut(int kept) {
  dup2(kept, 0);
#ifdef SYS_close_range
  if (syscall(SYS_close_range, 1u, ~0u, 0u) == 0) return;
#endif
  for (int fd = 1; fd < sysconf(_SC_OPEN_MAX) && fd < (1 << 16); ++fd) {
    close(fd);
  }
}

[[noreturn]] void StandGuard(int line) {
  // Neither the terminal's signals nor those to the runner's group are for it.
  setsid();
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  prctl(PR_SET_NAME, "mir-guard");
  CloseAllBut(line);
  std::set<pid_t> groups;
  while (true) {
    pid_t message = 0;
    const ssize_t got = recv(0, &message, sizeof(message), MSG_WAITALL);
    if (got == -1 && errno == EINTR) continue;
    if (got != sizeof(message)) break;
    if (message > 0) {
      groups.insert(message);
    } else {
      groups.erase(-message);
    }
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
  _exit(0);
}

}  // namespace

absl::StatusOr<Guard> Guard::Start() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::InternalError(
        absl::StrCat("cannot make a socket: ", std::strerror(errno)));
  }
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) {
    return absl::InternalError(
        absl::StrCat("cannot start a process: ", std::strerror(errno)));
  }
  if (pid == 0) StandGuard(theirs.get());
  return Guard(std::move(ours), pid);
}

Guard::~Guard() {
  if (!line_.open()) return;  // Moved from.
  line_.Reset();
  while (waitpid(pid_, nullptr, 0) == -1 && errno == EINTR) {
  }
}

void Guard::Send(pid_t message) {
  send(line_.get(), &message, sizeof(message), MSG_NOSIGNAL);
}

}  // namespace mir::launch
