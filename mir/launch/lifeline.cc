#include "mir/launch/lifeline.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <thread>

namespace mir::launch {

void HoldLifeline(const Env& env) {
  const absl::StatusOr<int64_t> value =
      GetInt(env, "MIR_LIFELINE_FD", 0, std::numeric_limits<int>::max());
  if (!value.ok()) return;
  const int fd = *value;
  struct stat file;
  if (fstat(fd, &file) != 0 || !S_ISFIFO(file.st_mode)) return;
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  std::thread([fd] {
    // Signals are for the other threads: one that is handled here would find
    // them inside a system call for longer.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    char byte;
    ssize_t got;
    do {
      got = read(fd, &byte, 1);
    } while (got > 0 || (got == -1 && errno == EINTR));
    if (got == 0) kill(0, SIGKILL);
  }).detach();
}

}  // namespace mir::launch
