#ifndef MIR_LAUNCH_SPAWN_H_
#define MIR_LAUNCH_SPAWN_H_

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "mir/launch/env.h"

namespace mir::launch {

// A file descriptor that is closed with its owner; -1 for none.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.Release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset();

 private:
  int fd_ = -1;
};

// Both ends of a new pipe, closed in programs that this process executes.
struct Pipe {
  UniqueFd read;
  UniqueFd write;
};
absl::StatusOr<Pipe> MakePipe();

// A program to start.
struct Command {
  std::vector<std::string> argv;  // argv[0] is its path.
  Env env;                        // All of its environment.
  std::string directory;          // To start in; empty for this process's.
  int stdout_fd = -1;             // -1: this process's own.
  int stderr_fd = -1;
  std::vector<int> cpus;      // It may run on; empty for this process's.
  std::vector<int> kept_fds;  // Left open in it, under the same numbers.
  // A process group of its own, so that a signal reaches what it starts too,
  // and that the terminal's Ctrl-C does not reach it.
  bool own_group = true;
};

// Starts `command` and returns its process id, once the program runs. Its
// standard input is /dev/null, its signals are as by default, and it dies by
// SIGKILL when the thread that called this ends: call it from the main thread.
//
// NOT_FOUND where there is no such program (exit code kNotFound),
// PERMISSION_DENIED where it cannot be executed (kNotExecutable), INTERNAL for
// any other fault; each names the program.
absl::StatusOr<pid_t> Spawn(const Command& command);

// What a program wrote and how it ended.
struct Captured {
  std::string output;   // stdout and stderr, as they came; the last 1 MiB.
  int wait_status = 0;  // As waitpid gives it.
};

// Runs `command` in this process's group, with both its outputs captured, and
// waits for its end. `stdout_fd` and `stderr_fd` are not looked at. Errors as
// Spawn.
absl::StatusOr<Captured> RunAndCapture(Command command);

// Runs `command` in this process's group and returns its wait status. Errors as
// Spawn.
absl::StatusOr<int> RunAndWait(Command command);

// The exit code of a program: its own, or 128 + n where signal n ended it.
int ExitCodeOfWaitStatus(int wait_status);

}  // namespace mir::launch

#endif  // MIR_LAUNCH_SPAWN_H_
