#include "mir/launch/working_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "mir/testing/status_matchers.h"

namespace mir::launch {
namespace {

using ::mir::testing::IsOk;
using ::mir::testing::StatusIs;
using ::testing::HasSubstr;

TEST(WorkingDirectoryTest, GoesWhereBazelRunWasCalled) {
  const std::filesystem::path before = std::filesystem::current_path();
  EXPECT_THAT(EnterCallersDirectory({}), IsOk());
  EXPECT_EQ(std::filesystem::current_path(), before);
  const std::filesystem::path folder =
      std::filesystem::canonical(::testing::TempDir());
  EXPECT_THAT(
      EnterCallersDirectory({{"BUILD_WORKING_DIRECTORY", folder.string()}}),
      IsOk());
  EXPECT_EQ(std::filesystem::current_path(), folder);
}

TEST(WorkingDirectoryTest, NamesAFolderThatIsNotThere) {
  EXPECT_THAT(
      EnterCallersDirectory({{"BUILD_WORKING_DIRECTORY", "/nowhere"}}),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("/nowhere")));
}

}  // namespace
}  // namespace mir::launch
