// Writers that are killed, or whose disk fills up, at each of their system
// calls in turn: the last good file stays, or the new one is whole.
//
// This program's own open, write, fsync, rename and so on stand in front of the
// system's.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <filesystem>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "mir/checkpoint/archive.h"
#include "mir/checkpoint/safetensors.h"
#include "mir/checkpoint/value.h"
#include "mir/testing/status_matchers.h"

namespace {

enum class Fault { kNone, kKill, kNoSpace };
Fault fault = Fault::kNone;
int calls_left = 0;  // Until the fault.

// Counts a call; true from the one on that is to fail.
bool Fails(bool needs_space) {
  if (fault == Fault::kNone || calls_left-- > 0) return false;
  if (fault == Fault::kNoSpace) {
    errno = ENOSPC;
    return needs_space;
  }
  kill(getpid(), SIGKILL);
  return true;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(arguments, int) : 0;
  va_end(arguments);
  if (Fails((flags & O_CREAT) != 0)) return -1;
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

ssize_t write(int descriptor, const void* data, size_t size) {
  // Killed halfway.
  if (fault == Fault::kKill && calls_left == 0) {
    syscall(SYS_write, descriptor, data, size / 2);
  }
  if (Fails(/*needs_space=*/true)) return -1;
  return syscall(SYS_write, descriptor, data, size);
}

int fsync(int descriptor) {
  if (Fails(/*needs_space=*/true)) return -1;
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

int rename(const char* from, const char* to) noexcept {
  if (Fails(/*needs_space=*/true)) return -1;
  return static_cast<int>(syscall(SYS_rename, from, to));
}

int unlink(const char* path) noexcept {
  if (Fails(/*needs_space=*/false)) return -1;
  return static_cast<int>(syscall(SYS_unlink, path));
}

int close(int descriptor) {
  if (Fails(/*needs_space=*/false)) return -1;
  return static_cast<int>(syscall(SYS_close, descriptor));
}

}  // extern "C"

namespace mir::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::mir::testing::IsOk;

// So many that some are written in blocks, and some at the end.
constexpr int64_t kElements = 2'500'000;

// A saved state that is 1 or 2 in every element.
Dict State(int64_t generation) {
  Dict dict;
  dict.Set("generation", at::arange(1).add(generation));
  dict.Set("weight", at::arange(kElements, at::kFloat).mul(0).add(generation));
  return dict;
}

struct Writer {
  const char* name;
  std::function<absl::Status(const std::string& path, int64_t generation)>
      write;
};

class SystemFaultTest : public ::testing::TestWithParam<Writer> {
 protected:
  void SetUp() override {
    folder_ =
        absl::StrCat(::testing::TempDir(), "system_fault_", GetParam().name);
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    path_ = folder_ + "/latest.pth";
  }

  // Which state the file holds, all of it; 0 for one that is not whole.
  int64_t Generation() const {
    const absl::StatusOr<Value> value = ReadCheckpoint(path_);
    EXPECT_THAT(value, IsOk());
    if (!value.ok()) return 0;
    const auto generation =
        value->Find("generation")->tensor()->item<int64_t>();
    const at::Tensor weight = *value->Find("weight")->tensor();
    return weight.numel() == kElements &&
                   weight.eq(generation).all().item<bool>()
               ? generation
               : 0;
  }

  int64_t Files() const {
    return std::distance(fs::directory_iterator(folder_), {});
  }

  std::string folder_;
  std::string path_;
};

TEST_P(SystemFaultTest, KilledAtAnyCallALastGoodFileIsThere) {
  int kills_before_the_new = 0;
  int kills_after = 0;
  for (int calls = 0;; ++calls) {
    ASSERT_LT(calls, 1000);
    ASSERT_THAT(GetParam().write(path_, 1), IsOk());
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      calls_left = calls;
      fault = Fault::kKill;
      const bool written = GetParam().write(path_, 2).ok();
      fault = Fault::kNone;
      _exit(written ? 0 : 1);
    }
    int state = 0;
    ASSERT_EQ(waitpid(child, &state, 0), child);
    const int64_t generation = Generation();
    if (WIFEXITED(state)) {
      ASSERT_EQ(WEXITSTATUS(state), 0);
      EXPECT_EQ(generation, 2);
      break;
    }
    ASSERT_EQ(WTERMSIG(state), SIGKILL);
    ASSERT_TRUE(generation == 1 || generation == 2) << calls;
    (generation == 1 ? kills_before_the_new : kills_after) += 1;
    // The next save removes what the dead one left.
    ASSERT_THAT(GetParam().write(path_, 3), IsOk());
    ASSERT_EQ(Files(), 1) << calls;
  }
  // To open, write, sync and rename; to open, sync and close the folder.
  EXPECT_GE(kills_before_the_new, 4);
  EXPECT_GE(kills_after, 3);
}

TEST_P(SystemFaultTest, AFullDiskLeavesTheLastGoodFileAndNoOther) {
  int failures = 0;
  for (int calls = 0;; ++calls) {
    ASSERT_LT(calls, 1000);
    ASSERT_THAT(GetParam().write(path_, 1), IsOk());
    calls_left = calls;
    fault = Fault::kNoSpace;
    const absl::Status status = GetParam().write(path_, 2);
    const bool reached = calls_left < 0;
    fault = Fault::kNone;
    ASSERT_EQ(Files(), 1) << calls;
    const int64_t generation = Generation();
    if (status.ok()) {
      ASSERT_EQ(generation, 2);
      if (!reached) break;
      continue;
    }
    ++failures;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(path_));
    // Only the folder's sync comes after the new file has its name.
    EXPECT_TRUE(generation == 1 ||
                absl::StrContains(status.message(), "its folder"))
        << status;
  }
  EXPECT_GE(failures, 4);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, SystemFaultTest,
    ::testing::Values(Writer{"Zip",
                             [](const std::string& path, int64_t generation) {
                               return WriteCheckpoint(path,
                                                      Value(State(generation)));
                             }},
                      Writer{"Safetensors",
                             [](const std::string& path, int64_t generation) {
                               Safetensors content;
                               const Dict state = State(generation);
                               for (const auto& [key, value] :
                                    state.entries()) {
                                 content.tensors.emplace_back(*key.string(),
                                                              *value.tensor());
                               }
                               return WriteSafetensors(path, content);
                             }}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace mir::checkpoint
