#include "mir/launch/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace mir::launch {

Terminal TerminalOf(int fd, const Env& env) {
  Terminal terminal;
  if (isatty(fd) == 1) {
    terminal.is_terminal = true;
    winsize size = {};
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
      terminal.columns = size.ws_col;
    }
    return terminal;
  }
  const absl::StatusOr<int64_t> columns = GetInt(
      env, fd == STDOUT_FILENO ? "MIR_STDOUT_COLUMNS" : "MIR_STDERR_COLUMNS", 1,
      10000);
  if (columns.ok()) {
    terminal.is_terminal = true;
    terminal.columns = *columns;
  }
  return terminal;
}

}  // namespace mir::launch
