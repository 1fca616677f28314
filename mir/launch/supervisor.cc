#include "mir/launch/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/types/optional.h"
#include "mir/base/status_macros.h"
#include "mir/launch/exit_codes.h"
#include "mir/launch/guard.h"
#include "mir/launch/line_splitter.h"
#include "mir/launch/process_state.h"

namespace mir::launch {
namespace {

constexpr size_t kTailBytes = 1 << 14;
// A victim of a failed rank may end before the culprit does, which takes down
// LibTorch or writes a core file first.
constexpr absl::Duration kCulpritDelay = absl::Seconds(1);
// One request that comes twice, as from timeout(1), which signals a process and
// then its group.
constexpr absl::Duration kSameSignal = absl::Milliseconds(300);
// How long workers that hang may take to write their stacks.
constexpr absl::Duration kStacksPatience = absl::Seconds(10);

// Since some fixed moment; stands still for nobody, and no clock change moves
// it.
absl::Duration Monotonic() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::DurationFromTimespec(now);
}

// Blocks signals and reads them from a descriptor instead.
class SignalReader {
 public:
  SignalReader() {
    sigemptyset(&signals_);
    for (const int signal :
         {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP, SIGCHLD}) {
      sigaddset(&signals_, signal);
    }
    struct sigaction hangup;
    if (sigaction(SIGHUP, nullptr, &hangup) == 0 &&
        hangup.sa_handler != SIG_IGN) {  // Not under nohup.
      sigaddset(&signals_, SIGHUP);
    }
    sigprocmask(SIG_BLOCK, &signals_, &before_);
    // Where this process was started with it ignored, the system would not keep
    // how a child ended.
    signal(SIGCHLD, SIG_DFL);
    fd_ = UniqueFd(signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~SignalReader() {
    // What is still pending was meant for the workers.
    while (Next() != 0) {
    }
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  int fd() const { return fd_.get(); }
  // 0 where none is pending.
  int Next() {
    signalfd_siginfo info;
    return read(fd_.get(), &info, sizeof(info)) == sizeof(info) ? info.ssi_signo
                                                                : 0;
  }

 private:
  sigset_t signals_;
  sigset_t before_;
  UniqueFd fd_;
};

struct Output {
  UniqueFd pipe;
  UniqueFd log;
  std::string log_path;
};

struct Worker {
  WorkerReport report;
  UniqueFd process;  // Readable when it has ended; -1 on old kernels.
  Output outputs[2];
  UniqueFd status;
  UniqueFd lifeline;
  LineSplitter status_lines{1 << 14};
  std::string stack_path;
  absl::Duration started;
  absl::Duration last_line;  // When its last status line came.
  // How often its phase changed since its step did: with the step, a clock that
  // goes alike on all ranks.
  int64_t phases = 0;
  bool writes_stacks = false;  // It was asked to, and has not told their end.
  bool group_left = false;     // Others of its group were there when it ended.
};

class Supervisor {
 public:
  Supervisor(const SupervisorOptions& options, Observer* observer)
      : options_(options), observer_(observer) {
    ended_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  }

  ~Supervisor() {
    for (const auto& worker : workers_) {
      if (worker->report.ended) continue;
      kill(-worker->report.pid, SIGKILL);
      waitpid(worker->report.pid, nullptr, given_up_ ? WNOHANG : 0);
    }
  }

  absl::Status Prepare();
  absl::Status Start(const WorkerSpec& spec);
  Outcome Run();

 private:
  void Wait();
  void ReadSignals();
  void ReadOutput(Worker* worker, Stream stream);
  void ReadStatus(Worker* worker);
  void Drain(Worker* worker);
  void Reap();
  void ReapWorker(int index);
  void Ended(const Worker& worker);
  void CheckDeadlines();
  // Whether the worker could hang, and if so when it would.
  absl::Duration HangsAt(const Worker& worker) const;
  void BeginHang(absl::Duration now);
  std::vector<WorkerReport> Reports() const;
  void Pause();
  void BeginStop(StopReason reason, int signal);
  void SendTerm(absl::Duration patience);
  void SendKill();
  void EndLeftProcesses();
  std::vector<int> Alive() const;
  void SignalAlive(int signal);

  Worker* ByIndex(int index) { return workers_[index].get(); }

  const SupervisorOptions options_;
  Observer* const observer_;
  SignalReader signals_;
  absl::optional<Guard> guard_;
  UniqueFd ended_;  // An epoll of processes: it tells them in their order.
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<int> order_;

  absl::Duration start_ = Monotonic();
  StopReason reason_ = StopReason::kNone;
  int signal_ = 0;
  int requests_ = 0;  // How often we were asked to stop.
  absl::Duration last_request_ = -absl::InfiniteDuration();
  int last_request_signal_ = 0;
  bool term_sent_ = false;
  bool kill_sent_ = false;
  bool given_up_ = false;
  bool log_fault_ = false;
  bool stacks_asked_ = false;
  // When to begin to stop because of `later_reason_`.
  absl::Duration later_ = absl::InfiniteDuration();
  StopReason later_reason_ = StopReason::kNone;
  // When SIGKILL is due, or after it giving up.
  absl::Duration deadline_ = absl::InfiniteDuration();
};

absl::Status Supervisor::Prepare() {
  MIR_ASSIGN_OR_RETURN(Guard guard, Guard::Start());
  guard_.emplace(std::move(guard));
  return absl::OkStatus();
}

absl::Status Supervisor::Start(const WorkerSpec& spec) {
  auto worker = std::make_unique<Worker>();
  worker->report.rank = spec.rank;
  Command command = spec.command;
  command.own_group = true;

  UniqueFd child_ends[2];
  for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
    Output& output = worker->outputs[static_cast<int>(stream)];
    output.log_path =
        absl::StrCat(spec.log_folder,
                     stream == Stream::kStdout ? "/stdout.log" : "/stderr.log");
    output.log = UniqueFd(open(output.log_path.c_str(),
                               O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!output.log.open()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "cannot write ", output.log_path, ": ", std::strerror(errno)));
    }
    MIR_ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
    fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK);
    output.pipe = std::move(pipe.read);
    child_ends[static_cast<int>(stream)] = std::move(pipe.write);
  }
  MIR_ASSIGN_OR_RETURN(Pipe status, MakePipe());
  MIR_ASSIGN_OR_RETURN(Pipe lifeline, MakePipe());
  fcntl(status.read.get(), F_SETFL, O_NONBLOCK);
  worker->status = std::move(status.read);
  worker->lifeline = std::move(lifeline.write);

  command.stdout_fd = child_ends[0].get();
  command.stderr_fd = child_ends[1].get();
  command.kept_fds.push_back(status.write.get());
  command.kept_fds.push_back(lifeline.read.get());
  command.env["MIR_STATUS_FD"] = absl::StrCat(status.write.get());
  command.env["MIR_LIFELINE_FD"] = absl::StrCat(lifeline.read.get());
  worker->stack_path = spec.log_folder + "/stack.txt";
  command.env["MIR_STACK_FILE"] = worker->stack_path;
  worker->started = Monotonic();
  worker->last_line = worker->started;
  MIR_ASSIGN_OR_RETURN(worker->report.pid, Spawn(command));
  guard_->Watch(worker->report.pid);

#ifdef SYS_pidfd_open
  worker->process = UniqueFd(
      static_cast<int>(syscall(SYS_pidfd_open, worker->report.pid, 0)));
#endif
  if (worker->process.open()) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u32 = workers_.size();
    epoll_ctl(ended_.get(), EPOLL_CTL_ADD, worker->process.get(), &event);
  }
  workers_.push_back(std::move(worker));
  observer_->Started(workers_.back()->report);
  return absl::OkStatus();
}

Outcome Supervisor::Run() {
  while (!given_up_ && !Alive().empty()) {
    CheckDeadlines();
    Wait();
    ReadSignals();
    for (const auto& worker : workers_) {
      for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
        ReadOutput(worker.get(), stream);
      }
      ReadStatus(worker.get());
    }
    Reap();
    observer_->Step();
    if (!term_sent_ && observer_->WantsStop()) {
      BeginStop(StopReason::kElsewhere, 0);
    }
  }
  EndLeftProcesses();
  for (const auto& worker : workers_) Drain(worker.get());

  Outcome outcome;
  outcome.reason = reason_;
  outcome.signal = signal_;
  outcome.order = order_;
  for (const auto& worker : workers_) outcome.workers.push_back(worker->report);
  Judge(&outcome);
  return outcome;
}

void Supervisor::Wait() {
  std::vector<pollfd> fds;
  fds.push_back({signals_.fd(), POLLIN, 0});
  fds.push_back({ended_.get(), POLLIN, 0});
  for (const auto& worker : workers_) {
    for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
      const Output& output = worker->outputs[static_cast<int>(stream)];
      if (output.pipe.open() &&
          (term_sent_ || observer_->Takes(worker->report.rank, stream))) {
        fds.push_back({output.pipe.get(), POLLIN, 0});
      }
    }
    if (worker->status.open()) fds.push_back({worker->status.get(), POLLIN, 0});
  }
  observer_->AddPollFds(&fds);

  const absl::Duration now = Monotonic();
  absl::Duration next = std::min(later_, deadline_);
  if (!term_sent_) {
    next = std::min(next, start_ + options_.timeout);
    const absl::Duration init = start_ + options_.init_timeout;
    if (now < init) next = std::min(next, init);
    for (const auto& worker : workers_) {
      next = std::min(next, HangsAt(*worker));
    }
  }
  const double wait = absl::ToDoubleMilliseconds(next - now);
  // At least once a second, for what no descriptor tells.
  const int milliseconds =
      static_cast<int>(std::ceil(std::clamp(wait, 0.0, 1000.0)));
  poll(fds.data(), fds.size(), milliseconds);
}

void Supervisor::ReadSignals() {
  while (const int signal = signals_.Next()) {
    if (signal == SIGCHLD) continue;
    if (signal == SIGTSTP) {
      Pause();
      continue;
    }
    if (signal == SIGUSR2) {
      observer_->StatusAsked(Reports());
      continue;
    }
    if (signal == SIGUSR1) {
      if (!term_sent_) BeginStop(StopReason::kSignal, signal);
      continue;
    }
    const absl::Duration now = Monotonic();
    const bool same =
        signal == last_request_signal_ && now - last_request_ < kSameSignal;
    last_request_ = now;
    last_request_signal_ = signal;
    if (same) continue;
    ++requests_;
    if (!term_sent_) {
      BeginStop(StopReason::kSignal, signal);
    } else if (requests_ < 3 && !kill_sent_) {
      SendTerm(options_.kill_wait);
    } else {
      SendKill();
    }
  }
}

// Ctrl-Z: the terminal stops this process's group, and the workers have groups
// of their own.
void Supervisor::Pause() {
  const absl::Duration before = Monotonic();
  SignalAlive(SIGSTOP);
  raise(SIGSTOP);
  SignalAlive(SIGCONT);
  const absl::Duration paused = Monotonic() - before;
  start_ += paused;
  for (const auto& worker : workers_) worker->last_line += paused;
  later_ += paused;
  deadline_ += paused;
}

void Supervisor::ReadOutput(Worker* worker, Stream stream) {
  Output& output = worker->outputs[static_cast<int>(stream)];
  if (!output.pipe.open() ||
      !(term_sent_ || observer_->Takes(worker->report.rank, stream))) {
    return;
  }
  char buffer[1 << 16];
  const ssize_t got = read(output.pipe.get(), buffer, sizeof(buffer));
  if (got == -1 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    output.pipe.Reset();
    observer_->OutputEnded(worker->report.rank, stream);
    return;
  }
  const absl::string_view bytes(buffer, got);
  absl::string_view rest = bytes;
  while (output.log.open() && !rest.empty()) {
    const ssize_t written = write(output.log.get(), rest.data(), rest.size());
    if (written > 0) {
      rest.remove_prefix(written);
    } else if (errno != EINTR) {
      // The disk is full, say. Training goes on; later bytes may fit again.
      if (!std::exchange(log_fault_, true)) {
        observer_->LogFault(output.log_path, std::strerror(errno));
      }
      break;
    }
  }
  if (stream == Stream::kStderr) {
    std::string& tail = worker->report.stderr_tail;
    tail.append(bytes.data(), bytes.size());
    if (tail.size() > kTailBytes) tail.erase(0, tail.size() - kTailBytes);
  }
  observer_->Output(worker->report.rank, stream, bytes);
}

void Supervisor::ReadStatus(Worker* worker) {
  WorkerReport& report = worker->report;
  const auto take = [&](absl::string_view text, LineSplitter::End) {
    const absl::StatusOr<StatusLine> line = ParseStatusLine(text);
    if (!line.ok()) return;
    worker->last_line = Monotonic();
    switch (line->event) {
      case StatusLine::Event::kHello:
        report.hello = true;
        break;
      case StatusLine::Event::kReady:
        report.ready = true;
        break;
      case StatusLine::Event::kBeat:
        if (report.step != line->step) {
          worker->phases = 0;
        } else if (report.phase != line->phase) {
          ++worker->phases;
        }
        report.step = line->step;
        report.phase = line->phase;
        break;
      case StatusLine::Event::kCheckpoint:
        report.checkpoint = line->path;
        report.checkpoint_step = line->step;
        break;
      case StatusLine::Event::kStacks:
        worker->writes_stacks = false;
        break;
      case StatusLine::Event::kBye:
        report.bye = true;
        break;
    }
    observer_->Status(report, *line);
  };
  char buffer[1 << 14];
  while (worker->status.open()) {
    const ssize_t got = read(worker->status.get(), buffer, sizeof(buffer));
    if (got == -1 && errno == EINTR) continue;
    if (got == -1 && errno == EAGAIN) return;
    if (got <= 0) {
      worker->status.Reset();
      return;
    }
    worker->status_lines.Add(absl::string_view(buffer, got), take);
  }
}

// Reads what an ended worker left in its pipes. They need not be at their end:
// another process may hold them.
void Supervisor::Drain(Worker* worker) {
  for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
    Output& output = worker->outputs[static_cast<int>(stream)];
    while (output.pipe.open()) {
      pollfd ready = {output.pipe.get(), POLLIN, 0};
      if (poll(&ready, 1, 0) <= 0) break;
      ReadOutput(worker, stream);
    }
    if (output.pipe.open()) {
      output.pipe.Reset();
      observer_->OutputEnded(worker->report.rank, stream);
    }
  }
}

void Supervisor::Reap() {
  epoll_event events[16];
  int count;
  do {
    count = epoll_wait(ended_.get(), events, 16, 0);
    for (int i = 0; i < count; ++i) ReapWorker(events[i].data.u32);
  } while (count > 0);
  for (int index = 0; index < workers_.size(); ++index) {
    if (!ByIndex(index)->process.open()) ReapWorker(index);
  }
}

void Supervisor::ReapWorker(int index) {
  Worker& worker = *ByIndex(index);
  WorkerReport& report = worker.report;
  if (report.ended ||
      waitpid(report.pid, &report.wait_status, WNOHANG) != report.pid) {
    return;
  }
  if (worker.process.open()) {
    epoll_ctl(ended_.get(), EPOLL_CTL_DEL, worker.process.get(), nullptr);
    worker.process.Reset();
  }
  report.ended = true;
  report.lived = Monotonic() - worker.started;
  // Its number cannot have been given to another process so soon.
  worker.group_left = kill(-report.pid, 0) == 0;
  if (!worker.group_left) guard_->Forget(report.pid);
  order_.push_back(index);
  ReadStatus(&worker);  // Its bye.
  Ended(worker);
}

void Supervisor::Ended(const Worker& worker) {
  const WorkerReport& report = worker.report;
  observer_->Ended(report);
  if (term_sent_) return;
  const int code = ExitCodeOfWaitStatus(report.wait_status);
  const auto stop_later = [&](StopReason reason, absl::Duration delay) {
    if (later_reason_ != StopReason::kNone) return;
    later_ = Monotonic() + delay;
    later_reason_ = reason;
  };
  if (code == kOk) {
    if (report.hello && !report.bye) {
      stop_later(StopReason::kLeftEarly, options_.grace);
    }
  } else if (code == kStopped) {
    stop_later(StopReason::kStopped, options_.grace);
  } else if (code == kPeer) {
    if (later_reason_ == StopReason::kNone ||
        later_ > Monotonic() + kCulpritDelay) {
      later_reason_ = StopReason::kNone;
      stop_later(StopReason::kFailure, kCulpritDelay);
    }
  } else {
    BeginStop(StopReason::kFailure, 0);
  }
}

void Supervisor::CheckDeadlines() {
  const absl::Duration now = Monotonic();
  if (!term_sent_) {
    if (now >= later_) {
      BeginStop(later_reason_, 0);
    } else if (now >= start_ + options_.timeout) {
      BeginStop(StopReason::kTimeout, 0);
    } else if (now >= start_ + options_.init_timeout) {
      bool any_hello = false;
      bool all_ready = true;
      for (const auto& worker : workers_) {
        any_hello |= worker->report.hello;
        all_ready &= worker->report.ready || worker->report.ended;
      }
      if (any_hello && !all_ready) BeginStop(StopReason::kInitTimeout, 0);
    }
    for (const auto& worker : workers_) {
      if (!term_sent_ && now >= HangsAt(*worker)) BeginHang(now);
    }
    return;
  }
  const bool stacks_written =
      stacks_asked_ && !kill_sent_ &&
      std::none_of(workers_.begin(), workers_.end(), [](const auto& worker) {
        return worker->writes_stacks && !worker->report.ended;
      });
  if (now < deadline_ && !stacks_written) return;
  if (!kill_sent_) {
    SendKill();
  } else {
    given_up_ = true;  // In an uninterruptible wait.
  }
}

absl::Duration Supervisor::HangsAt(const Worker& worker) const {
  const WorkerReport& report = worker.report;
  return report.ready && !report.ended
             ? worker.last_line + options_.hang_timeout
             : absl::InfiniteDuration();
}

void Supervisor::BeginHang(absl::Duration now) {
  reason_ = StopReason::kHang;
  std::vector<Worker*> alive;
  for (const auto& worker : workers_) {
    if (!worker->report.ended) alive.push_back(worker.get());
  }
  const auto place = [](const Worker* worker) {
    return std::make_pair(worker->report.step, worker->phases);
  };
  const auto [first, last] = std::minmax_element(
      alive.begin(), alive.end(),
      [&](const Worker* a, const Worker* b) { return place(a) < place(b); });
  const auto earliest = place(*first);
  const bool all_alike = earliest == place(*last);
  for (Worker* const worker : alive) {
    WorkerReport& report = worker->report;
    const ProcessState state = ProcessStateOf(report.pid);
    report.silent = now - worker->last_line;
    report.state = Describe(state);
    report.behind = all_alike ? state.stopped() : place(worker) == earliest;
    std::ofstream(worker->stack_path, std::ios::app)
        << "process " << report.pid << ", " << report.state
        << "; as the system sees its threads:\n"
        << DescribeThreads(report.pid) << std::flush;
    worker->writes_stacks =
        !state.stopped() && CatchesSignal(report.pid, SIGQUIT);
    if (worker->writes_stacks) kill(report.pid, SIGQUIT);
  }
  observer_->Hanging(Reports());
  stacks_asked_ = true;
  term_sent_ = true;  // They cannot save: what follows is SIGKILL.
  deadline_ = now + kStacksPatience;
}

std::vector<WorkerReport> Supervisor::Reports() const {
  std::vector<WorkerReport> reports;
  for (const auto& worker : workers_) {
    reports.push_back(worker->report);
    reports.back().silent = Monotonic() - worker->last_line;
  }
  return reports;
}

void Supervisor::BeginStop(StopReason reason, int signal) {
  if (reason_ == StopReason::kNone) {
    reason_ = reason;
    signal_ = signal;
  }
  SendTerm(options_.grace);
}

void Supervisor::SendTerm(absl::Duration patience) {
  term_sent_ = true;
  deadline_ = std::min(deadline_, Monotonic() + patience);
  const std::vector<int> alive = Alive();
  if (alive.empty()) return;
  observer_->Stopping(reason_, signal_, deadline_ - Monotonic(), alive);
  SignalAlive(SIGTERM);
  // One that is stopped would not see it.
  SignalAlive(SIGCONT);
}

void Supervisor::SendKill() {
  deadline_ = Monotonic() + options_.kill_wait;
  kill_sent_ = true;
  const std::vector<int> alive = Alive();
  if (alive.empty()) return;
  observer_->Killing(alive);
  SignalAlive(SIGKILL);
}

void Supervisor::SignalAlive(int signal) {
  for (const auto& worker : workers_) {
    if (worker->report.ended) continue;
    if (signal == SIGTERM || signal == SIGKILL) worker->report.signalled = true;
    kill(-worker->report.pid, signal);
  }
}

std::vector<int> Supervisor::Alive() const {
  std::vector<int> ranks;
  for (const auto& worker : workers_) {
    if (!worker->report.ended) ranks.push_back(worker->report.rank);
  }
  return ranks;
}

void Supervisor::EndLeftProcesses() {
  std::vector<Worker*> left;
  for (const auto& worker : workers_) {
    if (worker->group_left) left.push_back(worker.get());
  }
  const auto wait_for = [&](absl::Duration patience) {
    const absl::Duration until = Monotonic() + patience;
    while (!left.empty()) {
      left.erase(std::remove_if(left.begin(), left.end(),
                                [this](const Worker* worker) {
                                  const pid_t group = -worker->report.pid;
                                  // They have become children of this process.
                                  while (waitpid(group, nullptr, WNOHANG) > 0) {
                                  }
                                  if (kill(group, 0) == 0) return false;
                                  guard_->Forget(-group);
                                  return true;
                                }),
                 left.end());
      if (Monotonic() >= until) return;
      absl::SleepFor(absl::Milliseconds(5));
    }
  };
  // Those that got the same signal as their worker end a little later.
  wait_for(absl::Milliseconds(200));
  for (Worker* const worker : left) worker->report.left_processes = true;
  for (const int signal : {SIGTERM, SIGKILL}) {
    for (const Worker* const worker : left) kill(-worker->report.pid, signal);
    wait_for(std::min(options_.kill_wait, absl::Seconds(2)));
  }
}

}  // namespace

void Judge(Outcome* outcome) {
  const std::vector<WorkerReport>& workers = outcome->workers;
  const auto code_of = [&](int index) {
    return ExitCodeOfWaitStatus(workers[index].wait_status);
  };
  const auto failed = [&](int index) {
    const int code = code_of(index);
    return code != kOk && code != kStopped;
  };
  const auto first = [&](const auto& is) {
    for (const int index : outcome->order) {
      if (is(index)) return index;
    }
    return -1;
  };
  int root = first([&](int index) {
    return failed(index) && code_of(index) != kPeer &&
           !workers[index].signalled;
  });
  const bool timed_out = outcome->reason == StopReason::kTimeout ||
                         outcome->reason == StopReason::kInitTimeout ||
                         outcome->reason == StopReason::kHang;
  const bool stopped_from_outside = timed_out ||
                                    outcome->reason == StopReason::kSignal ||
                                    outcome->reason == StopReason::kElsewhere;
  bool left_early = false;
  if (root == -1 && !stopped_from_outside) {
    root = first([&](int index) {
      return code_of(index) == kOk && workers[index].hello &&
             !workers[index].bye;
    });
    left_early = root != -1;
  }
  if (root == -1 && !timed_out && outcome->reason != StopReason::kElsewhere) {
    // Not what SIGTERM and SIGKILL do to a program that does not catch them.
    // Told to stop, only our own workers' codes say more than that.
    root = first([&](int index) {
      const int code = code_of(index);
      return failed(index) && code != kPeer && code != kSignalBase + SIGTERM &&
             code != kSignalBase + SIGKILL &&
             (outcome->reason != StopReason::kSignal ||
              (workers[index].hello && code < kSignalBase));
    });
  }
  if (root == -1 && !stopped_from_outside) {
    root = first([&](int index) { return code_of(index) == kPeer; });
  }
  outcome->root_cause = root == -1 ? -1 : workers[root].rank;
  if (root != -1) {
    outcome->exit_code = left_early ? kOther : code_of(root);
    return;
  }
  if (timed_out) {
    outcome->exit_code = kTimeout;
    return;
  }
  bool all_clean = outcome->order.size() == workers.size();
  bool any_stopped = false;
  for (const int index : outcome->order) {
    all_clean &= !failed(index);
    any_stopped |= code_of(index) == kStopped;
  }
  if (all_clean) {
    outcome->exit_code = any_stopped ? kStopped : kOk;
  } else {
    outcome->exit_code = outcome->reason == StopReason::kSignal
                             ? kSignalBase + outcome->signal
                             : kOther;
  }
}

absl::StatusOr<Outcome> Supervise(const std::vector<WorkerSpec>& workers,
                                  const SupervisorOptions& options,
                                  Observer* observer) {
  // Processes whose worker has ended become this one's, which can then wait for
  // their end.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  Supervisor supervisor(options, observer);
  MIR_RETURN_IF_ERROR(supervisor.Prepare());
  for (const WorkerSpec& worker : workers) {
    MIR_RETURN_IF_ERROR(supervisor.Start(worker));
  }
  return supervisor.Run();
}

}  // namespace mir::launch
