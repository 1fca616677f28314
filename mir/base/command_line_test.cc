#include "mir/base/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "absl/flags/flag.h"
#include "mir/testing/status_matchers.h"

ABSL_FLAG(int64_t, val_every, 50, "Steps between validations.");
ABSL_FLAG(bool, resume, false, "Go on with the run.");
ABSL_FLAG(std::string, model, "voxelmorph", "Name of the model.");

namespace mir {
namespace {

using ::mir::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CommandLineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::SetFlag(&FLAGS_val_every, 50);
    absl::SetFlag(&FLAGS_resume, false);
    absl::SetFlag(&FLAGS_model, "voxelmorph");
  }

  absl::StatusOr<CommandLine> Parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "program");
    return ParseCommandLine(arguments.size(), arguments.data());
  }
};

TEST_F(CommandLineTest, TakesDashesUnderscoresAndBothWaysOfGivingAValue) {
  ASSERT_TRUE(Parse({"--val-every", "7"}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_val_every), 7);
  ASSERT_TRUE(Parse({"--val_every=8", "--model=a=b"}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_val_every), 8);
  EXPECT_EQ(absl::GetFlag(FLAGS_model), "a=b");
  ASSERT_TRUE(Parse({"--val-every", "-1"}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_val_every), -1);
}

TEST_F(CommandLineTest, SwitchesTakeNoValueAndTheLastOneWins) {
  ASSERT_THAT(Parse({"--resume", "rest"})->arguments, ElementsAre("rest"));
  EXPECT_TRUE(absl::GetFlag(FLAGS_resume));
  ASSERT_TRUE(Parse({"--resume", "--no-resume"}).ok());
  EXPECT_FALSE(absl::GetFlag(FLAGS_resume));
  ASSERT_TRUE(Parse({"--noresume", "--resume=true"}).ok());
  EXPECT_TRUE(absl::GetFlag(FLAGS_resume));
}

TEST_F(CommandLineTest, LeavesTheRestAlone) {
  const CommandLine line = Parse({"a", "-", "--", "--val-every", "-h"}).value();
  EXPECT_THAT(line.arguments, ElementsAre("a", "-", "--val-every", "-h"));
  EXPECT_FALSE(line.help);
  EXPECT_TRUE(Parse({"--help"})->help);
}

TEST_F(CommandLineTest, NamesWhatIsWrong) {
  struct Case {
    std::vector<const char*> arguments;
    const char* message;
  };
  for (const Case& wrong : std::vector<Case>{
           {{"--val-evry", "7"}, "did you mean --val-every?"},
           {{"--gpu-magic"}, "unknown option --gpu-magic"},
           {{"--val-every"}, "--val-every wants a value (Steps between"},
           {{"--model", "--resume"}, "--model wants a value"},
           {{"--val-every", "x"}, "--val-every=x is wrong; wanted: Steps"},
           {{"--no-model"}, "only a switch can be turned off"},
           {{"--resume=perhaps"}, "--resume=perhaps is wrong"},
       }) {
    EXPECT_THAT(
        Parse(wrong.arguments),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(wrong.message)));
  }
}

TEST_F(CommandLineTest, RecordedValuesYieldToTheCommandLine) {
  ASSERT_TRUE(Parse({"--val-every", "7", "--model", "vfa"}).ok());
  const std::map<std::string, std::string> recorded = FlagValues();
  SetUp();
  const CommandLine line = Parse({"--val-every", "9"}).value();
  ASSERT_TRUE(SetFlagsNotGiven(recorded, line).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_val_every), 9);
  EXPECT_EQ(absl::GetFlag(FLAGS_model), "vfa");
  EXPECT_THAT(
      SetFlagsNotGiven({{"gone", "1"}}, line),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--gone")));
}

TEST_F(CommandLineTest, HelpListsOurFlagsOnly) {
  const std::string help = CommandLineHelp("Usage: program");
  EXPECT_THAT(help,
              AllOf(HasSubstr("Usage: program\n"),
                    HasSubstr("  --val-every\n      Steps between validations. "
                              "Default: 50\n"),
                    HasSubstr("  --resume\n      Go on with the run.\n")));
  EXPECT_THAT(help, ::testing::Not(HasSubstr("flagfile")));
}

}  // namespace
}  // namespace mir
