#include "mir/training/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mir/testing/status_matchers.h"

namespace mir::training {
namespace {

using ::mir::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const models::TrainingDefaults kDefaults = {.similarity = "mse",
                                            .similarity_weight = 2,
                                            .regularizer = "l1",
                                            .regularizer_weight = 0.5,
                                            .learning_rate = 3e-4};

class FlagsTest : public ::testing::Test {
 protected:
  // Flags are the process's: every test leaves them as it found them.
  FlagsTest() : untouched_(FlagValues()) {}
  ~FlagsTest() override {
    EXPECT_TRUE(SetFlagsNotGiven(untouched_, CommandLine()).ok());
  }

  absl::StatusOr<TrainCommand> Parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "train_model");
    absl::StatusOr<CommandLine> line =
        ParseCommandLine(arguments.size(), arguments.data());
    if (!line.ok()) return line.status();
    return TrainCommandFromFlags(*line, kDefaults);
  }

 private:
  const std::map<std::string, std::string> untouched_;
};

TEST_F(FlagsTest, WhatIsNotGivenComesFromTheModel) {
  const TrainOptions options = Parse({"--data", "list.json"})->options;
  EXPECT_EQ(options.similarity, "mse");
  EXPECT_EQ(options.similarity_weight, 2);
  EXPECT_EQ(options.regularizer, "l1");
  EXPECT_EQ(options.regularizer_weight, 0.5);
  EXPECT_EQ(options.learning_rate, 3e-4);
  EXPECT_EQ(options.steps, 200);
}

TEST_F(FlagsTest, SyntheticShapesAreLearntFaster) {
  EXPECT_EQ(Parse({"--data="})->options.learning_rate, 1e-3);
}

TEST_F(FlagsTest, WhatIsGivenWins) {
  const TrainCommand command =
      Parse({"--similarity", "ncc", "--regularizer-weight=0", "--lr", "0.1",
             "--epochs", "3", "--size", "24,32", "--config", "tiny", "--set",
             "a=1;b=[2,3]", "--check-args", "--hyper", "0.25,1"})
          .value();
  EXPECT_EQ(command.options.similarity, "ncc");
  EXPECT_EQ(command.options.regularizer_weight, 0);
  EXPECT_EQ(command.options.learning_rate, 0.1);
  EXPECT_EQ(command.options.steps, 0);
  EXPECT_EQ(command.options.epochs, 3);
  EXPECT_THAT(command.options.data.size, ElementsAre(24, 32));
  EXPECT_EQ(command.configuration, "tiny");
  EXPECT_THAT(command.overrides, ElementsAre("a=1", "b=[2,3]"));
  EXPECT_TRUE(command.check_args);
  EXPECT_THAT(command.options.hyperparameters, ElementsAre(0.25, 1));
}

TEST_F(FlagsTest, AResumedRunTakesTheNewLength) {
  ASSERT_TRUE(Parse({"--epochs", "3"}).ok());
  const TrainOptions options = Parse({"--steps", "9"})->options;
  EXPECT_EQ(options.steps, 9);
  EXPECT_EQ(options.epochs, 0);
}

TEST_F(FlagsTest, WhatARunRecordedIsNotGivenAnew) {
  CommandLine line;
  EXPECT_TRUE(
      SetFlagsNotGiven({{"size", "8,8"}, {"data", "list.json"}}, line).ok());
  EXPECT_TRUE(TrainCommandFromFlags(line, kDefaults).ok());
}

TEST_F(FlagsTest, NamesWhatIsWrong) {
  struct Case {
    std::vector<const char*> arguments;
    const char* message;
  };
  for (const Case& wrong : std::vector<Case>{
           {{"train"}, "'train' is no option"},
           {{"--size", "32,x"}, "got '32,x'"},
           {{"--steps", "0"}, "--steps or --epochs"},
           {{"--steps", "5", "--epochs", "5"}, "give one"},
           {{"--synthetic", "--data", "list.json"}, "two sources"},
           {{"--spacing", "2"},
            "--spacing is for --data and --atlas and does "
            "nothing with synthetic shapes"},
           {{"--intensity", "none"}, "--intensity is for"},
           {{"--size", "32,32,32", "--data", "list.json"},
            "--size is for synthetic shapes and does nothing with --data"},
           {{"--size", "8,8", "--atlas", "a", "--atlas-labels", "b"},
            "nothing with --atlas"},
           {{"--pairs-per-epoch", "5", "--data", "list.json"},
            "--pairs-per-epoch is for"},
           {{"--val-pairs", "5", "--data", "list.json"}, "--val-pairs is for"},
           {{"--size", "4096,4096,4096"}, "68719476736 voxels"},
           {{"--precision", "fp8"}, "fp8"},
           {{"--prior", "beta:2"}, "--prior is for models that weigh"},
           {{"--hyper", "0.3,x"}, "got 'x'"},
           {{"--hyper", "1.2"}, "from 0 to 1, got 1.2"},
           {{"--similarty", "ncc"}, "did you mean --similarity?"},
       }) {
    SCOPED_TRACE(wrong.message);
    const std::map<std::string, std::string> before = FlagValues();
    EXPECT_THAT(
        Parse(wrong.arguments),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(wrong.message)));
    EXPECT_TRUE(SetFlagsNotGiven(before, CommandLine()).ok());
  }
}

}  // namespace
}  // namespace mir::training
