#include "mir/launch/error_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace mir::launch {
namespace {

Env* terminate_env = nullptr;

[[noreturn]] void ReportAndAbort() {
  std::string message = "std::terminate was called";
  if (const std::exception_ptr error = std::current_exception()) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      message = absl::StrCat("uncaught exception: ", e.what());
    } catch (...) {
      message = "uncaught exception of unknown type";
    }
  }
  std::fprintf(stderr, "error: %s\n", message.c_str());
  std::fflush(nullptr);
  ReportError(*terminate_env, message).IgnoreError();
  std::abort();
}

}  // namespace

absl::Status WriteErrorFile(const std::string& path, const WorkerError& error) {
  const nlohmann::json json = {
      {"message",
       {{"message", error.message},
        {"extraInfo",
         {{"py_callstack", error.call_stack},
          {"timestamp", absl::StrCat(absl::ToUnixSeconds(error.time))}}}}}};
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  std::ofstream file(temporary, std::ios::binary);
  file << json.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/false,
                    nlohmann::json::error_handler_t::replace);
  file.close();
  if (!file || std::rename(temporary.c_str(), path.c_str()) != 0) {
    const std::string why = std::strerror(errno);
    std::remove(temporary.c_str());
    return absl::InternalError(
        absl::StrCat("cannot write the error file ", path, ": ", why));
  }
  return absl::OkStatus();
}

absl::Status ReportError(const Env& env, absl::string_view message) {
  const std::string path = Get(env, "TORCHELASTIC_ERROR_FILE");
  if (path.empty() || access(path.c_str(), F_OK) == 0) return absl::OkStatus();
  return WriteErrorFile(path, {std::string(message), "", absl::Now()});
}

absl::StatusOr<WorkerError> ReadErrorFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("there is no ", path));
  const nlohmann::json json =
      nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  WorkerError error;
  try {
    const nlohmann::json& outer = json.at("message");
    if (outer.is_string()) {
      error.message = outer.get<std::string>();
      return error;
    }
    error.message = outer.at("message").get<std::string>();
    const nlohmann::json& extra = outer.at("extraInfo");
    error.call_stack = extra.value("py_callstack", "");
    int64_t seconds = 0;
    if (absl::SimpleAtoi(extra.value("timestamp", "0"), &seconds)) {
      error.time = absl::FromUnixSeconds(seconds);
    }
  } catch (const nlohmann::json::exception&) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a torchelastic error file"));
  }
  return error;
}

void ReportErrorOnTerminate(const Env& env) {
  delete std::exchange(terminate_env, new Env(env));
  std::set_terminate(ReportAndAbort);
}

}  // namespace mir::launch
