#include "mir/training/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "mir/testing/status_matchers.h"

namespace mir::training {
namespace {

using ::mir::testing::IsOk;
using ::mir::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string FreshPath(const char* name) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/", name);
  std::filesystem::remove_all(path);
  return path;
}

TEST(RunFolderTest, MakesItsFoldersAndLeavesNoProbe) {
  const RunFolder folder(FreshPath("made/deep/run"));
  ASSERT_THAT(folder.Prepare(/*resume=*/false), IsOk());
  int files = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(folder.path())) {
    ++files;
  }
  EXPECT_EQ(files, 1);
  EXPECT_TRUE(std::filesystem::is_directory(folder.path() + "/checkpoints"));
}

TEST(RunFolderTest, RefusesAnotherRunsFolderUnlessResuming) {
  const RunFolder folder(FreshPath("used"));
  ASSERT_THAT(folder.Prepare(false), IsOk());
  ASSERT_THAT(folder.AppendMetrics({{"step", 1}}), IsOk());
  EXPECT_THAT(
      folder.Prepare(false),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("holds another run"), HasSubstr("--resume"))));
  EXPECT_THAT(folder.Prepare(true), IsOk());
}

TEST(RunFolderTest, ARunThatSavedNothingIsNoRun) {
  const RunFolder folder(FreshPath("begun"));
  ASSERT_THAT(folder.Prepare(false), IsOk());
  ASSERT_THAT(folder.AppendMetrics({{"step", 0}, {"val_loss", 1}}), IsOk());
  EXPECT_THAT(folder.Prepare(false), IsOk());
  EXPECT_TRUE(folder.ReadMetrics()->empty());
}

TEST(RunFolderTest, RemovesWhatAKilledProcessLeft) {
  const RunFolder folder(FreshPath("killed"));
  ASSERT_THAT(folder.Prepare(false), IsOk());
  ASSERT_THAT(folder.WriteConfig({{"a", 1}}), IsOk());
  std::ofstream(folder.path() + "/config.json.12.tmp") << "half";
  std::ofstream(folder.path() + "/.12.probe") << "x";
  folder.RemoveLeftovers();
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/config.json.12.tmp"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/.12.probe"));
  EXPECT_THAT(folder.ReadConfig(), IsOk());
}

TEST(RunFolderTest, OneProcessTrainsInAFolderAtATime) {
  const RunFolder folder(FreshPath("locked"));
  ASSERT_THAT(folder.Prepare(false), IsOk());
  {
    const auto lock = folder.Lock();
    ASSERT_THAT(lock, IsOk());
    EXPECT_THAT(folder.Lock(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr("is training in")));
  }
  EXPECT_THAT(folder.Lock(), IsOk());
}

TEST(RunFolderTest, NamesAFolderThatCannotBeWritten) {
  const std::string path = FreshPath("a_file");
  std::ofstream(path) << "not a folder";
  EXPECT_THAT(RunFolder(path + "/run").Prepare(false),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       AllOf(HasSubstr("a_file/run"), HasSubstr("--out"))));
}

TEST(RunFolderTest, ConfigComesBack) {
  const RunFolder folder(FreshPath("config"));
  EXPECT_THAT(folder.ReadConfig(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("config.json")));
  ASSERT_THAT(folder.Prepare(false), IsOk());
  ASSERT_THAT(folder.WriteConfig({{"lr", 0.5}}), IsOk());
  EXPECT_EQ(folder.ReadConfig().value()["lr"], 0.5);
  std::ofstream(folder.path() + "/config.json") << "{";
  EXPECT_THAT(folder.ReadConfig(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("valid JSON")));
}

TEST(RunFolderTest, MetricsAreLinesAndRepeatedStepsAreDropped) {
  const RunFolder folder(FreshPath("metrics"));
  ASSERT_THAT(folder.Prepare(false), IsOk());
  for (int step = 1; step <= 3; ++step) {
    ASSERT_THAT(folder.AppendMetrics({{"step", step}, {"loss", std::nan("")}}),
                IsOk());
  }
  std::ofstream(folder.path() + "/metrics.jsonl", std::ios::app)
      << "{\"step\": 4, \"lo";
  ASSERT_THAT(folder.TruncateMetrics(2), IsOk());
  const std::vector<nlohmann::json> lines = folder.ReadMetrics().value();
  ASSERT_EQ(lines.size(), 2);
  EXPECT_EQ(lines[1]["step"], 2);
  EXPECT_TRUE(lines[1]["loss"].is_null());
}

}  // namespace
}  // namespace mir::training
