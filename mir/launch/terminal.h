#ifndef MIR_LAUNCH_TERMINAL_H_
#define MIR_LAUNCH_TERMINAL_H_

#include "mir/launch/env.h"

namespace mir::launch {

// Who reads an output stream.
struct Terminal {
  bool is_terminal = false;
  int columns = 80;  // 80 where the terminal does not say.
};

// What reads `fd` (1 or 2): a terminal of that width, or the runner in front of
// one, which shows text that ends in a carriage return in place. The runner
// says so by MIR_STDOUT_COLUMNS and MIR_STDERR_COLUMNS, the width that it
// leaves.
Terminal TerminalOf(int fd, const Env& env);

}  // namespace mir::launch

#endif  // MIR_LAUNCH_TERMINAL_H_
