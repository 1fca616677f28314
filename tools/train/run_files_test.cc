#include "tools/train/run_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "mir/testing/status_matchers.h"

namespace mir::tools {
namespace {

namespace fs = std::filesystem;
using ::mir::testing::IsOk;
using ::mir::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// Each test runs in a new folder.
class RunFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    before_ = fs::current_path();
    const fs::path folder =
        fs::path(::testing::TempDir()) /
        ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder);
    fs::create_directories(folder);
    fs::current_path(folder);
  }
  void TearDown() override { fs::current_path(before_); }

 private:
  fs::path before_;
};

TEST_F(RunFilesTest, ChoosesANewFolderEachTime) {
  const auto a = RunFiles::Make("");
  const auto b = RunFiles::Make("");
  ASSERT_THAT(a, IsOk());
  ASSERT_THAT(b, IsOk());
  EXPECT_THAT(a->folder(), MatchesRegex("runs/[0-9]{8}-[0-9]{6}-[0-9a-f]{4}"));
  EXPECT_NE(a->folder(), b->folder());
  EXPECT_EQ("runs/" + a->name(), a->folder());
  EXPECT_TRUE(fs::is_directory(a->folder()));
}

TEST_F(RunFilesTest, LatestNamesTheChosenFolder) {
  for (int i = 0; i < 2; ++i) {
    const auto files = RunFiles::Make("");
    ASSERT_THAT(files, IsOk());
    files->LinkLatest();
    EXPECT_EQ(fs::read_symlink("runs/latest"), files->name());
  }
  RunFiles::Make("elsewhere")->LinkLatest();
  EXPECT_NE(fs::read_symlink("runs/latest"), "elsewhere");
}

TEST_F(RunFilesTest, AttemptsCountUp) {
  for (const char* attempt : {"a/b/attempt-0", "a/b/attempt-1"}) {
    auto files = RunFiles::Make("a/b");
    ASSERT_THAT(files, IsOk());
    ASSERT_THAT(files->BeginAttempt(), IsOk());
    ASSERT_THAT(files->AddRanks(0, 2), IsOk());
    EXPECT_EQ(files->attempt_folder(), attempt);
    EXPECT_TRUE(fs::is_directory(files->attempt_folder() + "/rank-00001"));
  }
}

TEST_F(RunFilesTest, NodesShareAnAttempt) {
  auto first = RunFiles::Make("a");
  auto second = RunFiles::Make("a");
  ASSERT_THAT(first->BeginAttempt(), IsOk());
  ASSERT_THAT(first->AddRanks(0, 1), IsOk());
  ASSERT_THAT(second->JoinAttempt(first->attempt()), IsOk());
  ASSERT_THAT(second->AddRanks(1, 2), IsOk());
  EXPECT_EQ(second->attempt_folder(), "a/attempt-0");
  EXPECT_TRUE(fs::is_directory("a/attempt-0/rank-00002"));
}

TEST_F(RunFilesTest, FilesAreWrittenWhole) {
  const auto files = RunFiles::Make("a");
  ASSERT_THAT(files, IsOk());
  ASSERT_THAT(files->Write("plan.json", "first"), IsOk());
  ASSERT_THAT(files->Write("plan.json", "2"), IsOk());
  std::stringstream text;
  text << std::ifstream("a/plan.json").rdbuf();
  EXPECT_EQ(text.str(), "2");
  EXPECT_THAT(files->Write("no/plan.json", ""),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("cannot write a/no/plan.json: No such")));
  EXPECT_EQ(std::distance(fs::directory_iterator("a"), {}), 1);
}

TEST_F(RunFilesTest, NamesIgnoreASlashAtTheEnd) {
  EXPECT_EQ(RunFiles::Make("a/b/")->name(), "b");
}

TEST_F(RunFilesTest, DiscardLeavesWhatIsInUse) {
  RunFiles::Make("")->Discard();
  EXPECT_FALSE(fs::exists("runs"));

  const auto with_empty = RunFiles::Make("new/run");
  fs::create_directories("new/run/checkpoints");
  with_empty->Discard();
  EXPECT_FALSE(fs::exists("new"));

  const auto with_file = RunFiles::Make("new/run");
  std::ofstream("new/run/notes") << "x";
  with_file->Discard();
  EXPECT_TRUE(fs::exists("new/run/notes"));

  // It was there before, with an empty folder of its own.
  fs::create_directories("old/empty");
  RunFiles::Make("old")->Discard();
  EXPECT_TRUE(fs::exists("old/empty"));
}

TEST_F(RunFilesTest, FoldersThatCannotBeMadeAreNamed) {
  std::ofstream("file") << "x";
  for (const char* out : {"file", "file/run", "/proc/run"}) {
    EXPECT_THAT(
        RunFiles::Make(out),
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 AllOf(HasSubstr(std::string("output folder ") + out + ": "),
                       HasSubstr("help: choose another with --out"))));
  }
  std::ofstream("runs") << "x";
  EXPECT_THAT(RunFiles::Make(""),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("output folder runs: Not a directory")));
}

}  // namespace
}  // namespace mir::tools
