#include "mir/launch/stop_flag.h"

#include <signal.h>
#include <time.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <initializer_list>

namespace mir::launch {
namespace {

constexpr int64_t kSameSignalNanoseconds = 250'000'000;

std::atomic<int> stop_signal{0};
// When the first SIGTERM or SIGINT came; 0 before.
std::atomic<int64_t> first_end_request{0};
static_assert(std::atomic<int>::is_always_lock_free &&
                  std::atomic<int64_t>::is_always_lock_free,
              "signal handlers may only use lock-free atomics");

// Async-signal-safe throughout.
void Handle(int signal) {
  const int saved_errno = errno;
  int none = 0;
  stop_signal.compare_exchange_strong(none, signal);
  if (signal != SIGUSR1) {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const int64_t nanoseconds =
        now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
    int64_t never = 0;
    if (!first_end_request.compare_exchange_strong(never, nanoseconds) &&
        nanoseconds - never > kSameSignalNanoseconds) {
      ::signal(signal, SIG_DFL);
      raise(signal);  // Delivered when this handler returns.
    }
  }
  errno = saved_errno;
}

}  // namespace

void HandleStopSignals() {
  struct sigaction action = {};
  action.sa_handler = Handle;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    sigaction(signal, &action, nullptr);
  }
}

bool StopRequested() {
  return stop_signal.load(std::memory_order_relaxed) != 0;
}

int StopSignal() { return stop_signal.load(std::memory_order_relaxed); }

}  // namespace mir::launch
