#include "mir/launch/error_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "absl/status/status.h"
#include "mir/testing/status_matchers.h"

namespace mir::launch {
namespace {

using ::mir::testing::IsOk;
using ::mir::testing::StatusIs;
using ::testing::HasSubstr;

std::string NewPath(const std::string& name) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::filesystem::remove_all(path);
  return path;
}

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void Throw() { throw std::runtime_error("out of cheese"); }

TEST(ErrorFileTest, HasTorchelasticsLayout) {
  const std::string path = NewPath("layout.json");
  ASSERT_THAT(WriteErrorFile(path, {"no \"data\"", "a\nb",
                                    absl::FromUnixSeconds(1700000000)}),
              IsOk());
  EXPECT_EQ(Contents(path),
            R"({"message":{"extraInfo":{"py_callstack":"a\nb",)"
            R"("timestamp":"1700000000"},"message":"no \"data\""}})");
  const auto error = ReadErrorFile(path);
  ASSERT_THAT(error, IsOk());
  EXPECT_EQ(error->message, "no \"data\"");
  EXPECT_EQ(error->call_stack, "a\nb");
  EXPECT_EQ(absl::ToUnixSeconds(error->time), 1700000000);
}

TEST(ErrorFileTest, ReadsAMessageWithoutDetails) {
  const std::string path = NewPath("plain.json");
  std::ofstream(path) << R"({"message":"boom"})";
  const auto error = ReadErrorFile(path);
  ASSERT_THAT(error, IsOk());
  EXPECT_EQ(error->message, "boom");
}

TEST(ErrorFileTest, OtherFilesAreRefused) {
  EXPECT_THAT(ReadErrorFile(NewPath("absent.json")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent.json")));
  const std::string path = NewPath("cut.json");
  std::ofstream(path) << R"({"message":{"mess)";
  EXPECT_THAT(ReadErrorFile(path), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("cut.json")));
}

TEST(ErrorFileTest, AFolderThatIsMissingIsNamed) {
  const std::string path = NewPath("missing") + "/error.json";
  EXPECT_THAT(
      WriteErrorFile(path, {"x", "", absl::UnixEpoch()}),
      StatusIs(absl::StatusCode::kInternal,
               HasSubstr("missing/error.json: No such file or directory")));
}

TEST(ErrorFileTest, TheFirstReportStays) {
  const std::string path = NewPath("first.json");
  const Env env = {{"TORCHELASTIC_ERROR_FILE", path}};
  ASSERT_THAT(ReportError(env, "first"), IsOk());
  ASSERT_THAT(ReportError(env, "second"), IsOk());
  EXPECT_EQ(ReadErrorFile(path)->message, "first");
  EXPECT_THAT(ReportError(Env{}, "nobody asks"), IsOk());
}

TEST(ErrorFileDeathTest, AnUncaughtExceptionIsReported) {
  const std::string path = NewPath("terminate.json");
  EXPECT_EXIT(
      {
        ReportErrorOnTerminate({{"TORCHELASTIC_ERROR_FILE", path}});
        []() noexcept { Throw(); }();
      },
      ::testing::KilledBySignal(SIGABRT), "uncaught exception: out of cheese");
  EXPECT_EQ(ReadErrorFile(path)->message, "uncaught exception: out of cheese");
}

}  // namespace
}  // namespace mir::launch
