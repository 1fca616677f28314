#ifndef MIR_LAUNCH_STACK_DUMP_H_
#define MIR_LAUNCH_STACK_DUMP_H_

#include "mir/launch/env.h"

namespace mir::launch {

// Lets SIGQUIT ask this process for the stacks of all its threads, after which
// it goes on. They are appended to the file that MIR_STACK_FILE names, or
// written to stderr without it; then the runner is told (status_line.h). Of a
// thread that does not answer within a second there is its state instead.
//
// Names of functions come from the dynamic symbol table: what the program
// itself defines is an address that addr2line turns into a line.
//
// Call it once, from main, before threads start. Uses the signal SIGRTMIN + 4.
void HandleStackRequests(const Env& env);

}  // namespace mir::launch

#endif  // MIR_LAUNCH_STACK_DUMP_H_
