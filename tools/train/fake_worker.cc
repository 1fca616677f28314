// A worker without a model, for the runner's tests: it keeps the whole contract
// of mir/launch and counts steps.

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <set>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "mir/launch/env.h"
#include "mir/launch/error_file.h"
#include "mir/launch/exit_codes.h"
#include "mir/launch/lifeline.h"
#include "mir/launch/status_line.h"
#include "mir/launch/stop_flag.h"
#include "mir/launch/terminal.h"
#include "mir/launch/world.h"

namespace mir::launch {
namespace {

int Main(int argc, char** argv) {
  const Env env = CurrentEnv();
  HandleStopSignals();
  HoldLifeline(env);
  ReportErrorOnTerminate(env);
  const StatusWriter status(env);
  const absl::StatusOr<World> world = WorldFromEnv(env);
  if (!world.ok()) {
    std::cerr << "error: " << world.status().message() << std::endl;
    return kEnvironment;
  }

  std::set<std::string> flags;
  int steps = 1;
  std::string out;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (absl::ConsumePrefix(&argument, "--steps=")) {
      if (!absl::SimpleAtoi(argument, &steps)) return kArguments;
    } else if (absl::ConsumePrefix(&argument, "--out=")) {
      out = std::string(argument);
    } else {
      flags.insert(std::string(argument));
    }
  }
  // A flag of one rank: --slow-start:1.
  const auto has = [&](const std::string& flag) {
    return flags.count(flag) > 0 ||
           flags.count(absl::StrCat(flag, ":", world->rank)) > 0;
  };

  if (has("--help")) {
    std::cout << "Usage: fake_worker" << std::endl;
    return kOk;
  }
  if (has("--wrong")) {
    std::cerr << "error: --wrong is wrong" << std::endl;
    return kArguments;
  }
  if (has("--check-args")) {
    if (has("--crash-in-check")) std::abort();
    if (world->launched()) return kOther;  // There are no ranks yet.
    return kOk;
  }

  status.Hello(world->rank);
  if (has("--grandchild")) {
    const pid_t child = fork();
    if (child == 0) {
      for (;;) pause();
    }
    std::cout << "grandchild " << child << std::endl;
  }
  if (has("--deaf")) signal(SIGTERM, SIG_IGN);
  while (has("--slow-start")) absl::SleepFor(absl::Milliseconds(50));
  status.Ready();
  std::cout << "ready, process " << getpid() << std::endl;
  if (has("--columns")) {
    std::cout << "stdout has " << TerminalOf(1, env).columns << std::endl;
  }
  for (int step = 1; step <= steps; ++step) {
    absl::SleepFor(absl::Milliseconds(50));
    status.Beat(step, "train");
    if (step == 2 && has("--fail-at-2")) {
      ReportError(env, "the loss is not finite").IgnoreError();
      std::cerr << "error: the loss is not finite" << std::endl;
      status.Bye(kNumeric);
      return kNumeric;
    }
    if (step == 2 && has("--leave-at-2")) return kOk;
    if (StopRequested()) {
      if (has("--slow-save")) absl::SleepFor(absl::Seconds(100));
      status.Checkpoint(out + "/checkpoints/latest.pth", step);
      status.Bye(kStopped);
      return kStopped;
    }
  }
  status.Bye(kOk);
  return kOk;
}

}  // namespace
}  // namespace mir::launch

int main(int argc, char** argv) { return mir::launch::Main(argc, argv); }
