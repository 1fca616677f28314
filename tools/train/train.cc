// Trains a model in one or several processes: `bazel run //tools:train -- …`.

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "mir/launch/env.h"
#include "tools/train/runner.h"

int main(int argc, char** argv) {
  // The files that are opened later must not take the places of outputs that
  // are closed.
  for (int fd = open("/dev/null", O_RDWR); fd >= 0; fd = dup(fd)) {
    if (fd > STDERR_FILENO) {
      close(fd);
      break;
    }
  }
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);  // Who started this program may have ignored it.
  return mir::tools::RunTraining(
      std::vector<std::string>(argv + 1, argv + argc),
      mir::launch::CurrentEnv());
}
