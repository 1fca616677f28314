#include "mir/testing/multi_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

namespace mir::testing {
namespace {

constexpr char kRankVariable[] = "MIR_TEST_PROCESS_RANK";
constexpr char kFolderVariable[] = "MIR_TEST_PROCESS_FOLDER";

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string PathOf(const std::string& folder, int rank,
                   const std::string& name) {
  return absl::StrCat(folder, "/", rank, ".", name);
}

// Ends the process as main would.
[[noreturn]] void RunChild(const std::function<std::string(int)>& body) {
  int rank = 0;
  (void)absl::SimpleAtoi(getenv(kRankVariable), &rank);
  try {
    const std::string value = body(rank);
    std::ofstream(PathOf(getenv(kFolderVariable), rank, "value"),
                  std::ios::binary)
        << value;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "the body threw: " << error.what();
  }
  std::cout << std::flush;
  exit(::testing::Test::HasFailure() ? 1 : 0);
}

// This process's variables, without those that would make a child write into
// the test's own reports or run only a part.
std::map<std::string, std::string> InheritedEnvironment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(*entry, absl::MaxSplits('=', 1));
    const bool report = absl::StartsWith(parts.first, "GTEST_") ||
                        absl::StartsWith(parts.first, "TEST_SHARD_") ||
                        absl::StartsWith(parts.first, "TEST_TOTAL_SHARDS") ||
                        parts.first == "TESTBRIDGE_TEST_ONLY" ||
                        parts.first == "TEST_PREMATURE_EXIT_FILE" ||
                        parts.first == "XML_OUTPUT_FILE";
    if (!report) variables.insert(parts);
  }
  return variables;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

pid_t Spawn(const ProcessesOptions& options, const std::string& folder,
            int rank) {
  std::map<std::string, std::string> variables = InheritedEnvironment();
  variables[kRankVariable] = absl::StrCat(rank);
  variables[kFolderVariable] = folder;
  if (options.environment != nullptr) {
    for (const auto& [name, value] : options.environment(rank)) {
      variables[name] = value;
    }
  }
  std::vector<std::string> environment;
  for (const auto& [name, value] : variables) {
    environment.push_back(absl::StrCat(name, "=", value));
  }
  const ::testing::TestInfo& test =
      *::testing::UnitTest::GetInstance()->current_test_info();
  std::vector<std::string> arguments = {
      "test_process", absl::StrCat("--gtest_filter=", test.test_suite_name(),
                                   ".", test.name())};
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> envp = Pointers(environment);
  const std::string output = PathOf(folder, rank, "output");
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid != 0) return pid;
  // Only what is safe after a fork of a process with threads.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  const int fd = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  dup2(fd, STDOUT_FILENO);
  dup2(fd, STDERR_FILENO);
  execve("/proc/self/exe", argv.data(), envp.data());
  _exit(127);
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const ProcessResult& result) {
  if (result.timed_out) {
    out << "killed at the deadline";
  } else if (result.signal != 0) {
    out << "ended by signal " << result.signal;
  } else {
    out << "ended with exit code " << result.exit_code;
  }
  return out << ", value '" << result.value << "', output:\n" << result.output;
}

bool IsChildProcess() { return getenv(kRankVariable) != nullptr; }

std::vector<ProcessResult> RunProcesses(
    const ProcessesOptions& options,
    const std::function<std::string(int rank)>& body) {
  if (IsChildProcess()) RunChild(body);
  std::string folder = ::testing::TempDir() + "/processes.XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    ADD_FAILURE() << "cannot make a folder like " << folder;
    return {};
  }
  std::vector<ProcessResult> results(options.count);
  std::map<pid_t, int> running;
  for (int rank = 0; rank < options.count; ++rank) {
    const pid_t pid = Spawn(options, folder, rank);
    if (pid < 0) {
      ADD_FAILURE() << "cannot start process " << rank;
    } else {
      running[pid] = rank;
    }
  }
  const absl::Time deadline = absl::Now() + options.deadline;
  bool killed = false;
  while (!running.empty()) {
    for (auto process = running.begin(); process != running.end();) {
      int status = 0;
      if (waitpid(process->first, &status, WNOHANG) != process->first) {
        ++process;
        continue;
      }
      ProcessResult& result = results[process->second];
      if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
      if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
      process = running.erase(process);
    }
    if (!killed && absl::Now() > deadline) {
      killed = true;
      for (const auto& [pid, rank] : running) {
        results[rank].timed_out = true;
        kill(pid, SIGKILL);
      }
    }
    absl::SleepFor(absl::Milliseconds(5));
  }
  for (int rank = 0; rank < options.count; ++rank) {
    results[rank].value = ReadFile(PathOf(folder, rank, "value"));
    results[rank].output = ReadFile(PathOf(folder, rank, "output"));
  }
  return results;
}

}  // namespace mir::testing
