#ifndef MIR_LAUNCH_SUPERVISOR_H_
#define MIR_LAUNCH_SUPERVISOR_H_

#include <poll.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "mir/launch/spawn.h"
#include "mir/launch/status_line.h"

namespace mir::launch {

enum class Stream { kStdout, kStderr };

// A worker to start.
struct WorkerSpec {
  int rank = 0;
  // The outputs, the process group, MIR_STATUS_FD and MIR_LIFELINE_FD are set
  // by Supervise.
  Command command;
  // Gets stdout.log and stderr.log, byte for byte, and stack.txt where the
  // workers hang; must exist.
  std::string log_folder;
};

struct SupervisorOptions {
  absl::Duration grace = absl::Seconds(30);      // From SIGTERM to SIGKILL.
  absl::Duration kill_wait = absl::Seconds(10);  // From SIGKILL to giving up.
  absl::Duration timeout = absl::InfiniteDuration();  // Of the whole.
  // From the start until all workers are ready, where any says hello.
  absl::Duration init_timeout = absl::Seconds(120);
  // From one status line of a worker that was ready to its next, or its end.
  absl::Duration hang_timeout = absl::InfiniteDuration();
};

// What is known of a worker.
struct WorkerReport {
  int rank = 0;
  pid_t pid = 0;
  bool ended = false;
  int wait_status = 0;          // As waitpid gives it; of a worker that ended.
  bool signalled = false;       // Supervise sent it a signal before it ended.
  bool left_processes = false;  // Some of its group had to be ended after it.
  absl::Duration lived;

  // As its status lines say.
  bool hello = false;
  bool ready = false;
  bool bye = false;
  int64_t step = -1;  // The last beat's; -1 before the first.
  std::string phase;
  std::string checkpoint;  // The last one's path; empty before the first.
  int64_t checkpoint_step = -1;

  std::string stderr_tail;  // Its last bytes, at most 16 KiB.

  // Where the workers hang (StopReason::kHang):
  absl::Duration silent;  // Since its last status line.
  bool behind = false;    // Others may wait for this one.
  std::string state;      // As process_state.h describes it.
};

enum class StopReason {
  kNone,         // All ended by themselves.
  kFailure,      // A worker failed.
  kLeftEarly,    // A worker that promised to say bye ended without it.
  kStopped,      // A worker was told to stop, not by us, and others went on.
  kSignal,       // We were told to stop.
  kTimeout,      // SupervisorOptions::timeout.
  kInitTimeout,  // SupervisorOptions::init_timeout.
  kHang,         // SupervisorOptions::hang_timeout.
  kElsewhere,    // Observer::WantsStop.
};

struct Outcome {
  int exit_code = 0;
  StopReason reason = StopReason::kNone;
  int signal = 0;       // For kSignal: the first.
  int root_cause = -1;  // The rank that everything else follows from, or -1.
  std::vector<WorkerReport> workers;  // As they were given.
  std::vector<int> order;  // Indices into `workers`, in the order of their end.
};

// Fills `exit_code` and `root_cause` from the rest.
//
// The root cause is the first worker to fail that Supervise had not signalled
// and whose exit code is not kPeer; where there is none, one that left early;
// then one that failed in its own way although it was signalled; then the first
// with kPeer. The exit code is the root cause's (128 + n for signal n, kOther
// where it left early). Without a root cause: kTimeout after a timeout or hang;
// kStopped where all workers ended with it or with 0; 128 + n where we were
// stopped by signal n and they did not; else 0 or kOther.
void Judge(Outcome* outcome);

// Is told what happens, on the supervising thread, and shows it.
class Observer {
 public:
  virtual ~Observer() = default;

  virtual void Started(const WorkerReport& /*worker*/) {}
  virtual void Output(int /*rank*/, Stream /*stream*/,
                      absl::string_view /*bytes*/) {}
  virtual void OutputEnded(int /*rank*/, Stream /*stream*/) {}
  virtual void Status(const WorkerReport& /*worker*/,
                      const StatusLine& /*line*/) {}
  virtual void Ended(const WorkerReport& /*worker*/) {}

  // Workers are asked to end (SIGTERM) for `reason`, or once more; they get
  // `patience` until SIGKILL.
  virtual void Stopping(StopReason /*reason*/, int /*signal*/,
                        absl::Duration /*patience*/,
                        const std::vector<int>& /*ranks*/) {}
  // The workers hang: `silent`, `behind` and `state` are filled. Stacks are
  // being written.
  virtual void Hanging(const std::vector<WorkerReport>& /*workers*/) {}
  // SIGUSR2 came: somebody wants to know how far the workers are.
  virtual void StatusAsked(const std::vector<WorkerReport>& /*workers*/) {}
  // These are being killed (SIGKILL).
  virtual void Killing(const std::vector<int>& /*ranks*/) {}
  // A log file cannot be written any more; said once.
  virtual void LogFault(const std::string& /*path*/,
                        const std::string& /*why*/) {}

  // Whether more output of this stream can be taken now. Where not, the worker
  // waits once its pipe is full.
  virtual bool Takes(int /*rank*/, Stream /*stream*/) { return true; }
  // Descriptors that the observer waits for.
  virtual void AddPollFds(std::vector<pollfd>* /*fds*/) {}
  // After each wait, whatever it was for; at least once a second.
  virtual void Step() {}
  // Whether the workers are to stop, since others of the same run did on
  // another machine. Asked after each Step.
  virtual bool WantsStop() { return false; }
};

// Starts the workers and waits for the end of all of them. The first that fails
// stops the others: SIGTERM to their process groups, after `grace` SIGKILL, and
// after `kill_wait` more those that are still there are given up.
//
// Meanwhile SIGINT, SIGTERM and SIGHUP (unless it is ignored) ask the workers
// to stop by SIGTERM; the second time they have `kill_wait` left, the third
// time they are killed. The same signal within 0.3 s is one. SIGUSR1, a
// scheduler's warning, asks them to stop once. SIGTSTP stops the workers and
// this process; when it is continued, so are they, and no time has passed.
// SIGUSR2 asks the observer to show how far they are.
//
// A worker that was ready and tells nothing for `hang_timeout` hangs. Then the
// threads of each worker are written to its stack.txt, from outside, and those
// that handle SIGQUIT (stack_dump.h; not while they are stopped) append their
// stacks; all are killed. Ranks take the same steps in the same order, so those
// that stand at the earliest place hold up the others; where all stand at the
// same place, those whose process is stopped do.
//
// Workers, and all in their groups, are also killed where this process dies.
// Processes that a worker left in its group when it ended are ended too, at the
// end of all workers; for that this process becomes the parent of all orphans
// below it. Call it from the main thread.
//
// Errors of Spawn where a worker cannot be started, and FAILED_PRECONDITION
// where a log file cannot be opened; no worker is left running then.
absl::StatusOr<Outcome> Supervise(const std::vector<WorkerSpec>& workers,
                                  const SupervisorOptions& options,
                                  Observer* observer);

}  // namespace mir::launch

#endif  // MIR_LAUNCH_SUPERVISOR_H_
