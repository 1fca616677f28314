// A worker without a model, for the runner's tests: it keeps the whole contract
// of mir/launch and counts steps.

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
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
#include "mir/launch/stack_dump.h"
#include "mir/launch/status_line.h"
#include "mir/launch/stop_flag.h"
#include "mir/launch/terminal.h"
#include "mir/launch/world.h"

namespace mir::launch {
namespace {

int Main(int argc, char** argv) {
  const Env env = CurrentEnv();
  HandleStopSignals();
  HandleStackRequests(env);
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
  // Saves after every second step, and goes on from there.
  const std::string latest = out + "/checkpoints/latest.pth";
  int first = 1;
  if (has("--resume")) {
    int saved = 0;
    if (!(std::ifstream(latest) >> saved)) return kCheckpoint;
    first = saved + 1;
    std::cout << "resumed at step " << saved << std::endl;
  }
  const bool first_try = Get(env, "TORCHELASTIC_RESTART_COUNT") == "0";
  const auto fails = [&](const std::string& how) {
    return has(how) || (first_try && has(how + "-once"));
  };
  const auto save = [&](int step) {
    std::filesystem::create_directories(out + "/checkpoints");
    std::ofstream(latest + ".tmp") << step << std::flush;
    std::filesystem::rename(latest + ".tmp", latest);
  };
  // Until all ranks have come to this step, or a signal asks to stop.
  const auto wait_for_all = [&](int step) {
    const auto place = [&](int rank) {
      return absl::StrCat(out, "/attempt-", Get(env, "MIR_GENERATION"),
                          "/rank-0000", rank, "/step-", step);
    };
    std::ofstream(place(world->rank)).flush();
    for (int rank = 0; rank < world->size; ++rank) {
      while (!StopRequested() && !std::filesystem::exists(place(rank))) {
        absl::SleepFor(absl::Milliseconds(5));
      }
    }
  };
  std::cout << "restart " << Get(env, "TORCHELASTIC_RESTART_COUNT") << " of "
            << Get(env, "TORCHELASTIC_MAX_RESTARTS") << ", generation "
            << Get(env, "MIR_GENERATION") << std::endl;
  std::cout << "ready, process " << getpid() << std::endl;
  if (has("--columns")) {
    std::cout << "stdout has " << TerminalOf(1, env).columns << std::endl;
  }
  for (int step = first; step <= steps; ++step) {
    absl::SleepFor(absl::Milliseconds(50));
    status.Beat(step, "train");
    if (step == 5 && fails("--crash-at-5")) raise(SIGSEGV);
    if (step == 5 && fails("--stop-at-5")) raise(SIGSTOP);
    while (step == 5 && fails("--sleep-at-5")) pause();
    if (has("--in-step")) wait_for_all(step);
    if (step % 2 == 0 && has("--save") && world->rank == 0) {
      save(step);
      status.Checkpoint(latest, step);
    }
    std::cout << "step " << step << std::endl;
    if (step == 2 && has("--fail-at-2")) {
      ReportError(env, "the loss is not finite").IgnoreError();
      std::cerr << "error: the loss is not finite" << std::endl;
      status.Bye(kNumeric);
      return kNumeric;
    }
    if (step == 2 && has("--leave-at-2")) return kOk;
    if (StopRequested()) {
      if (has("--slow-save")) absl::SleepFor(absl::Seconds(100));
      if (has("--save") && world->rank == 0) save(step);
      status.Checkpoint(latest, step);
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
