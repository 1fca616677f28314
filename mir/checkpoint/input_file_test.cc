#include "mir/checkpoint/input_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "mir/testing/status_matchers.h"

namespace mir::checkpoint {
namespace {

using ::mir::testing::IsOk;
using ::mir::testing::StatusIs;
using ::testing::HasSubstr;

std::string Path(const std::string& name) {
  return ::testing::TempDir() + "input_file_" + name;
}

TEST(InputFileTest, ReadsAnyPart) {
  std::ofstream(Path("ten")) << "0123456789";
  auto opened = InputFile::Open(Path("ten"));
  ASSERT_THAT(opened, IsOk());
  const InputFile file = *std::move(opened);
  EXPECT_EQ(file.size(), 10);
  std::string part(4, ' ');
  EXPECT_THAT(file.Read(6, part.data(), 4), IsOk());
  EXPECT_EQ(part, "6789");
  EXPECT_THAT(file.Read(7, part.data(), 4),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr(Path("ten"))));
}

TEST(InputFileTest, NamesWhatItCannotOpen) {
  EXPECT_THAT(InputFile::Open(Path("absent")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(Path("absent"))));
  EXPECT_THAT(
      InputFile::Open(::testing::TempDir()),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a folder")));
  const std::string pipe = Path("pipe");
  unlink(pipe.c_str());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(InputFile::Open(pipe),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("no regular file")));
}

}  // namespace
}  // namespace mir::checkpoint
