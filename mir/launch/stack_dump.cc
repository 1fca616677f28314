#include "mir/launch/stack_dump.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "mir/launch/process_state.h"
#include "mir/launch/status_line.h"

namespace mir::launch {
namespace {

constexpr int kMostFrames = 100;

// What the thread that is asked writes, and the thread that asks reads once
// `answered` is posted. A thread that answers too late finds another number in
// `asked` and leaves it alone.
struct Answer {
  std::atomic<pid_t> asked{0};
  void* frames[kMostFrames];
  int count = 0;
  sem_t answered;
};
Answer& TheAnswer() {
  static auto& answer = *new Answer;
  return answer;
}

int request_pipe_write = -1;

int ThreadSignal() { return SIGRTMIN + 4; }

pid_t ThisThread() { return static_cast<pid_t>(syscall(SYS_gettid)); }

// In the thread that is asked. backtrace() was called before, so that it loads
// no library here.
void AnswerRequest(int) {
  const int saved_errno = errno;
  Answer& answer = TheAnswer();
  pid_t self = ThisThread();
  if (answer.asked.compare_exchange_strong(self, 0)) {
    answer.count = backtrace(answer.frames, kMostFrames);
    sem_post(&answer.answered);
  }
  errno = saved_errno;
}

void PassRequestOn(int) {
  const int saved_errno = errno;
  const char byte = 0;
  if (write(request_pipe_write, &byte, 1) < 0) {
    // The pipe is full of requests already.
  }
  errno = saved_errno;
}

std::string FrameName(void* address) {
  Dl_info info = {};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) {
    return absl::StrFormat("%p", address);
  }
  const auto offset_from = [&](const void* base) {
    return static_cast<const char*>(address) - static_cast<const char*>(base);
  };
  if (info.dli_sname == nullptr) {
    return absl::StrFormat("%s(+0x%x)", info.dli_fname,
                           offset_from(info.dli_fbase));
  }
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status),
      &std::free);
  return absl::StrFormat("%s(+0x%x) in %s",
                         name != nullptr ? name.get() : info.dli_sname,
                         offset_from(info.dli_saddr), info.dli_fname);
}

bool Ask(pid_t thread) {
  Answer& answer = TheAnswer();
  answer.asked = thread;
  if (syscall(SYS_tgkill, getpid(), thread, ThreadSignal()) != 0) return false;
  timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 1;
  while (sem_timedwait(&answer.answered, &until) != 0) {
    if (errno == EINTR) continue;
    pid_t expected = thread;
    if (answer.asked.compare_exchange_strong(expected, 0)) return false;
    // It has begun to answer.
    while (sem_wait(&answer.answered) != 0 && errno == EINTR) {
    }
    return true;
  }
  return true;
}

std::string AllStacks() {
  std::vector<pid_t> threads;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/task", error)) {
    int thread = 0;
    if (absl::SimpleAtoi(entry.path().filename().string(), &thread) &&
        thread != ThisThread()) {
      threads.push_back(thread);
    }
  }
  std::sort(threads.begin(), threads.end());
  std::string text =
      absl::StrCat("stacks of process ", getpid(), ", innermost first:\n");
  for (const pid_t thread : threads) {
    absl::StrAppend(&text, "thread ", thread, ":\n");
    if (!Ask(thread)) {
      absl::StrAppend(&text, "  no answer; it is ",
                      Describe(ProcessStateOf(getpid(), thread)), "\n");
      continue;
    }
    // The first is the handler.
    for (int i = 1; i < TheAnswer().count; ++i) {
      absl::StrAppend(&text, "  ", FrameName(TheAnswer().frames[i]), "\n");
    }
  }
  return text;
}

void WriteAll(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(written);
    } else if (errno != EINTR) {
      return;
    }
  }
}

void ServeRequests(int requests, const std::string& path,
                   const StatusWriter& status) {
  // Other signals are for the other threads.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  char bytes[64];
  while (true) {
    const ssize_t got = read(requests, bytes, sizeof(bytes));
    if (got == -1 && errno == EINTR) continue;
    if (got <= 0) return;
    const std::string text = AllStacks();
    const int file =
        path.empty() ? -1
                     : open(path.c_str(),
                            O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    WriteAll(file < 0 ? STDERR_FILENO : file, text);
    if (file >= 0) close(file);
    status.Stacks();
  }
}

}  // namespace

void HandleStackRequests(const Env& env) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
  fcntl(ends[0], F_SETFL, 0);  // The reader waits.
  request_pipe_write = ends[1];
  void* frame = nullptr;
  backtrace(&frame, 1);  // Loads what it needs.
  sem_init(&TheAnswer().answered, /*pshared=*/0, 0);

  struct sigaction action = {};
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  action.sa_handler = AnswerRequest;
  sigaction(ThreadSignal(), &action, nullptr);
  action.sa_handler = PassRequestOn;
  sigaction(SIGQUIT, &action, nullptr);
  std::thread(ServeRequests, ends[0], Get(env, "MIR_STACK_FILE"),
              StatusWriter(env))
      .detach();
}

}  // namespace mir::launch
