#include "tools/train/devices.h"

#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "mir/launch/spawn.h"

namespace mir::tools {
namespace {

constexpr int kPatienceMilliseconds = 30'000;

template <typename Function>
Function Symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

// In the child: a line per device, or "!" and the reason.
std::string AskDriver() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return "!libcuda.so.1 not found";
  const auto init = Symbol<int (*)(unsigned)>(driver, "cuInit");
  const auto get_count = Symbol<int (*)(int*)>(driver, "cuDeviceGetCount");
  const auto get_name =
      Symbol<int (*)(char*, int, int)>(driver, "cuDeviceGetName");
  if (init == nullptr || get_count == nullptr || get_name == nullptr) {
    return "!libcuda.so.1 is no CUDA driver";
  }
  if (const int error = init(0); error == 100) {
    return "!the driver finds no device";
  } else if (error != 0) {
    return absl::StrCat("!cuInit fails with error ", error);
  }
  int count = 0;
  if (const int error = get_count(&count); error != 0) {
    return absl::StrCat("!cuDeviceGetCount fails with error ", error);
  }
  if (count == 0) return "!the driver finds no device";
  std::string lines;
  for (int device = 0; device < count; ++device) {
    char name[256] = "unknown";
    get_name(name, sizeof(name) - 1, device);
    absl::StrAppend(&lines, name, "\n");
  }
  return lines;
}

}  // namespace

CudaDevices FindCudaDevices(const launch::Env& env) {
  constexpr char kVisible[] = "CUDA_VISIBLE_DEVICES";
  const auto visible = env.find(kVisible);
  if (visible != env.end() && visible->second.empty()) {
    return {{}, "CUDA_VISIBLE_DEVICES is empty"};
  }
  absl::StatusOr<launch::Pipe> answer = launch::MakePipe();
  const pid_t child = answer.ok() ? fork() : -1;
  if (child < 0) return {{}, "no process to ask the driver"};
  if (child == 0) {
    if (visible == env.end()) {
      unsetenv(kVisible);
    } else {
      setenv(kVisible, visible->second.c_str(), /*overwrite=*/1);
    }
    const std::string text = AskDriver();
    const ssize_t written =
        write(answer->write.get(), text.data(), text.size());
    _exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  answer->write.Reset();
  std::string text;
  std::string why = "the driver ends the process that asks it";
  while (true) {
    pollfd ready = {answer->read.get(), POLLIN, 0};
    const int polled = poll(&ready, 1, kPatienceMilliseconds);
    if (polled == -1 && errno == EINTR) continue;
    if (polled == 0) {
      kill(child, SIGKILL);
      why = "the driver does not answer";
      text.clear();
      break;
    }
    char buffer[4096];
    const ssize_t got = read(answer->read.get(), buffer, sizeof(buffer));
    if (got <= 0) break;
    text.append(buffer, got);
  }
  while (waitpid(child, nullptr, 0) == -1 && errno == EINTR) {
  }
  if (text.empty()) return {{}, why};
  if (text.front() == '!') {
    why = text.substr(1);
    if (visible != env.end()) {
      absl::StrAppend(&why, "; CUDA_VISIBLE_DEVICES=", visible->second);
    }
    return {{}, why};
  }
  return {absl::StrSplit(text, '\n', absl::SkipEmpty()), ""};
}

}  // namespace mir::tools
