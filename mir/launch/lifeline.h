#ifndef MIR_LAUNCH_LIFELINE_H_
#define MIR_LAUNCH_LIFELINE_H_

#include "mir/launch/env.h"

namespace mir::launch {

// Ties this process to the runner that started it: MIR_LIFELINE_FD names the
// read end of a pipe whose write end only the runner holds. A thread waits on
// it, and when the runner is gone, however it went, kills this process's group
// (SIGKILL), hence also the processes that this one started.
//
// Without MIR_LIFELINE_FD, or where it does not name a pipe, does nothing: a
// process that was started by hand or by torchrun goes on alone. Call it once,
// early in main, before MIR_LIFELINE_FD is passed to children: the descriptor
// is closed in programs that this one executes.
void HoldLifeline(const Env& env);

}  // namespace mir::launch

#endif  // MIR_LAUNCH_LIFELINE_H_
