#ifndef MIR_LAUNCH_PROCESS_STATE_H_
#define MIR_LAUNCH_PROCESS_STATE_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace mir::launch {

// What the system knows of a process from outside, so also of one that is
// stopped or does not answer.
struct ProcessState {
  // As /proc names it: R running, S waiting, D waiting for a device or a file
  // system, T stopped, t traced, Z dead; 0 where there is no such process.
  char code = 0;
  std::string waits_in;  // The kernel's function; empty where it does not say.
  int64_t resident_bytes = 0;

  bool stopped() const { return code == 'T' || code == 't'; }
};

// The state of `pid`, or of one thread of it where `thread` is not 0.
ProcessState ProcessStateOf(pid_t pid, pid_t thread = 0);

// "running", "stopped", "waiting in futex_do_wait".
std::string Describe(const ProcessState& state);

// A line for each thread of `pid`: its number, its name and its state.
std::string DescribeThreads(pid_t pid);

// Whether `pid` has a handler for `signal`; false where that cannot be seen.
bool CatchesSignal(pid_t pid, int signal);

}  // namespace mir::launch

#endif  // MIR_LAUNCH_PROCESS_STATE_H_
