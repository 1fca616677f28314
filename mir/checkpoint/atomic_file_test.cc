#include "mir/checkpoint/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mir/testing/status_matchers.h"

namespace mir::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::mir::testing::IsOk;
using ::mir::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AtomicFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = absl::StrCat(::testing::TempDir(), "atomic_file_", info->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    path_ = folder_ + "/latest.pth";
  }

  static std::string Content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  static absl::Status Save(const std::string& path, const std::string& text) {
    auto file = AtomicFile::Create(path);
    if (!file.ok()) return file.status();
    if (auto status = (*file)->Write(text.data(), text.size()); !status.ok()) {
      return status;
    }
    return (*file)->Commit();
  }

  std::string folder_;
  std::string path_;
};

TEST_F(AtomicFileTest, ReplacesTheFileOnlyAtCommit) {
  ASSERT_THAT(Save(path_, "old"), IsOk());
  auto file = AtomicFile::Create(path_);
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT((*file)->Write("ne", 2), IsOk());
  ASSERT_THAT((*file)->Write("w", 1), IsOk());
  EXPECT_EQ(Content(path_), "old");
  ASSERT_THAT((*file)->Commit(), IsOk());
  EXPECT_EQ(Content(path_), "new");
  file->reset();
  EXPECT_THAT(Names(), ElementsAre("latest.pth"));
}

TEST_F(AtomicFileTest, LeavesNothingWithoutCommit) {
  ASSERT_THAT(Save(path_, "old"), IsOk());
  auto file = AtomicFile::Create(path_);
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT((*file)->Write("new", 3), IsOk());
  file->reset();
  EXPECT_EQ(Content(path_), "old");
  EXPECT_THAT(Names(), ElementsAre("latest.pth"));
}

TEST_F(AtomicFileTest, TakesTheUsualPermissions) {
  const mode_t before = umask(022);
  ASSERT_THAT(Save(path_, "x"), IsOk());
  umask(before);
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0644);
}

TEST_F(AtomicFileTest, WritesThroughASymbolicLink) {
  ASSERT_THAT(Save(folder_ + "/step_5.pth", "five"), IsOk());
  fs::create_symlink("step_5.pth", path_);
  ASSERT_THAT(Save(path_, "new five"), IsOk());
  EXPECT_TRUE(fs::is_symlink(path_));
  EXPECT_EQ(Content(folder_ + "/step_5.pth"), "new five");
}

TEST_F(AtomicFileTest, NamesWhatItCannotWrite) {
  EXPECT_THAT(Save(folder_ + "/absent/x.pth", "x"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent/x.pth")));
  EXPECT_THAT(Save(folder_, "x"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(folder_)));
  EXPECT_THAT(Save(folder_ + "/", "x"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(folder_)));
  ASSERT_THAT(Save(folder_ + "/file", "x"), IsOk());
  EXPECT_THAT(
      Save(folder_ + "/file/x.pth", "x"),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("file/x.pth")));
}

// A limit on the size of files stands in for a full disk.
TEST_F(AtomicFileTest, AFullDiskLeavesTheLastGoodFile) {
  ASSERT_THAT(Save(path_, "old"), IsOk());
  struct rlimit before {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = before;
  small.rlim_cur = 1000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = Save(path_, std::string(5000, 'x'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
  EXPECT_THAT(std::string(status.message()), HasSubstr("is unchanged"));
  EXPECT_EQ(Content(path_), "old");
  EXPECT_THAT(Names(), ElementsAre("latest.pth"));
  EXPECT_THAT(Save(path_, "again"), IsOk());
  EXPECT_EQ(Content(path_), "again");
}

TEST_F(AtomicFileTest, KilledWhileSavingTheLastGoodFileStays) {
  ASSERT_THAT(Save(path_, "old"), IsOk());
  for (int writes = 0; writes < 4; ++writes) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto file = AtomicFile::Create(path_);
      for (int i = 0; i < writes; ++i) {
        if (!(*file)->Write("new", 3).ok()) _exit(1);
      }
      raise(SIGKILL);
    }
    int state = 0;
    ASSERT_EQ(waitpid(child, &state, 0), child);
    ASSERT_TRUE(WIFSIGNALED(state));
    EXPECT_EQ(Content(path_), "old");
    EXPECT_EQ(Names().size(), 2);  // What was killed is still there.
  }
  // Another writer that lives is not disturbed, the dead one is removed.
  auto living = AtomicFile::Create(path_);
  ASSERT_THAT(living, IsOk());
  ASSERT_THAT(Save(path_, "new"), IsOk());
  EXPECT_EQ(Names().size(), 2);
  ASSERT_THAT((*living)->Write("newer", 5), IsOk());
  ASSERT_THAT((*living)->Commit(), IsOk());
  EXPECT_EQ(Content(path_), "newer");
  EXPECT_THAT(Names(), ElementsAre("latest.pth"));
}

}  // namespace
}  // namespace mir::checkpoint
