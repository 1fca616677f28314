#include "mir/launch/spawn.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mir/base/status_macros.h"
#include "mir/launch/exit_codes.h"

namespace mir::launch {
namespace {

constexpr size_t kCapturedBytes = 1 << 20;

absl::Status Fault(const char* what, int why) {
  return absl::InternalError(absl::StrCat(what, ": ", std::strerror(why)));
}

absl::Status CannotStart(const std::string& program, int why) {
  const std::string message =
      absl::StrCat("cannot start ", program, ": ", std::strerror(why));
  switch (why) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case ENOEXEC:
      return absl::PermissionDeniedError(message);
    default:
      return absl::InternalError(message);
  }
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) {
    pointers.push_back(const_cast<char*>(text.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

// A set of CPUs that is made before fork, which may not allocate after it.
class CpuSet {
 public:
  explicit CpuSet(const std::vector<int>& cpus) {
    if (cpus.empty()) return;
    const int bits = *std::max_element(cpus.begin(), cpus.end()) + 1;
    bytes_ = CPU_ALLOC_SIZE(bits);
    set_ = CPU_ALLOC(bits);
    CPU_ZERO_S(bytes_, set_);
    for (const int cpu : cpus) CPU_SET_S(cpu, bytes_, set_);
  }
  ~CpuSet() {
    if (set_ != nullptr) CPU_FREE(set_);
  }
  CpuSet(const CpuSet&) = delete;
  CpuSet& operator=(const CpuSet&) = delete;

  bool Apply() const {
    return set_ == nullptr || sched_setaffinity(0, bytes_, set_) == 0;
  }

 private:
  cpu_set_t* set_ = nullptr;
  size_t bytes_ = 0;
};

// Between fork and exec: async-signal-safe calls only. Writes errno to
// `fault_fd` where it fails.
[[noreturn]] void BecomeProgram(const Command& command, pid_t parent,
                                const CpuSet& cpus, int null_fd, int fault_fd,
                                char* const* argv, char* const* envp) {
  bool ok = true;
  if (command.own_group) ok = setpgid(0, 0) == 0;
  ok = ok && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
  if (getppid() != parent) _exit(kRunnerFault);  // It is gone already.
  ok = ok && cpus.Apply();
  ok = ok && dup2(null_fd, STDIN_FILENO) >= 0;
  if (command.stdout_fd >= 0) {
    ok = ok && dup2(command.stdout_fd, STDOUT_FILENO) >= 0;
  }
  if (command.stderr_fd >= 0) {
    ok = ok && dup2(command.stderr_fd, STDERR_FILENO) >= 0;
  }
  for (const int fd : command.kept_fds) {
    ok = ok && fcntl(fd, F_SETFD, 0) == 0;
  }
  signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (ok && !command.directory.empty()) {
    ok = chdir(command.directory.c_str()) == 0;
  }
  if (ok) execve(argv[0], argv, envp);
  const int why = errno;
  while (write(fault_fd, &why, sizeof(why)) == -1 && errno == EINTR) {
  }
  _exit(kNotFound);
}

}  // namespace

void UniqueFd::Reset() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

absl::StatusOr<Pipe> MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return Fault("cannot make a pipe", errno);
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

absl::StatusOr<pid_t> Spawn(const Command& command) {
  const std::vector<char*> argv = Pointers(command.argv);
  std::vector<std::string> assignments;
  for (const auto& [name, value] : command.env) {
    assignments.push_back(absl::StrCat(name, "=", value));
  }
  const std::vector<char*> envp = Pointers(assignments);
  const UniqueFd null_fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null_fd.open()) return Fault("cannot open /dev/null", errno);
  MIR_ASSIGN_OR_RETURN(Pipe fault, MakePipe());

  const CpuSet cpus(command.cpus);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return Fault("cannot start a process", errno);
  if (pid == 0) {
    BecomeProgram(command, parent, cpus, null_fd.get(), fault.write.get(),
                  argv.data(), envp.data());
  }
  // Here too, so that the group exists before anyone signals it.
  if (command.own_group) setpgid(pid, pid);
  fault.write.Reset();
  int why = 0;
  ssize_t got;
  do {
    got = read(fault.read.get(), &why, sizeof(why));
  } while (got == -1 && errno == EINTR);
  if (got == sizeof(why)) {
    waitpid(pid, nullptr, 0);
    return CannotStart(command.argv[0], why);
  }
  return pid;
}

absl::StatusOr<int> RunAndWait(Command command) {
  command.own_group = false;
  MIR_ASSIGN_OR_RETURN(const pid_t pid, Spawn(command));
  int wait_status = 0;
  while (waitpid(pid, &wait_status, 0) == -1) {
    if (errno != EINTR) return Fault("cannot wait for a process", errno);
  }
  return wait_status;
}

absl::StatusOr<Captured> RunAndCapture(Command command) {
  MIR_ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
  command.own_group = false;
  command.stdout_fd = pipe.write.get();
  command.stderr_fd = pipe.write.get();
  MIR_ASSIGN_OR_RETURN(const pid_t pid, Spawn(command));
  pipe.write.Reset();
  Captured captured;
  char buffer[1 << 14];
  while (true) {
    const ssize_t got = read(pipe.read.get(), buffer, sizeof(buffer));
    if (got == -1 && errno == EINTR) continue;
    if (got <= 0) break;
    captured.output.append(buffer, got);
    if (captured.output.size() > 2 * kCapturedBytes) {
      captured.output.erase(0, captured.output.size() - kCapturedBytes);
    }
  }
  while (waitpid(pid, &captured.wait_status, 0) == -1) {
    if (errno != EINTR) return Fault("cannot wait for a process", errno);
  }
  return captured;
}

int ExitCodeOfWaitStatus(int wait_status) {
  return WIFSIGNALED(wait_status) ? kSignalBase + WTERMSIG(wait_status)
                                  : WEXITSTATUS(wait_status);
}

}  // namespace mir::launch
