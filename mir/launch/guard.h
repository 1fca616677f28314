#ifndef MIR_LAUNCH_GUARD_H_
#define MIR_LAUNCH_GUARD_H_

#include <sys/types.h>

#include "absl/status/statusor.h"
#include "mir/launch/spawn.h"

namespace mir::launch {

// A small process that outlives this one by a moment: when this process ends,
// however it does, the guard kills (SIGKILL) the process groups that are
// watched. What Spawn starts dies by itself then, but not what that started in
// turn.
//
// Not thread-safe.
class Guard {
 public:
  // INTERNAL where no process can be started.
  static absl::StatusOr<Guard> Start();

  Guard(Guard&&) = default;
  Guard& operator=(Guard&&) = delete;
  // Ends the guard; watched groups are killed.
  ~Guard();

  void Watch(pid_t group) { Send(group); }
  void Forget(pid_t group) { Send(-group); }

 private:
  Guard(UniqueFd line, pid_t pid) : line_(std::move(line)), pid_(pid) {}
  void Send(pid_t message);

  UniqueFd line_;  // The guard's end of it closes with this process.
  pid_t pid_;
};

}  // namespace mir::launch

#endif  // MIR_LAUNCH_GUARD_H_
