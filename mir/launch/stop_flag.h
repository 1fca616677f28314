#ifndef MIR_LAUNCH_STOP_FLAG_H_
#define MIR_LAUNCH_STOP_FLAG_H_

namespace mir::launch {

// Lets a training loop stop at the end of a step, with a checkpoint: after this
// call SIGTERM, SIGINT and SIGUSR1 (which schedulers send ahead of a time
// limit) only set a flag. A further SIGTERM or SIGINT more than a quarter of a
// second later ends the process at once, by that signal; sooner, it counts as
// the same one, since a process and its group are often signalled in turn.
//
// Call it once, from main, before threads start.
void HandleStopSignals();

// Whether one came. Thread-safe and cheap; ranks get signals at different
// steps, so agree on it over all ranks (maximum) before acting.
bool StopRequested();

// The first signal that came, 0 for none.
int StopSignal();

}  // namespace mir::launch

#endif  // MIR_LAUNCH_STOP_FLAG_H_
