#include "mir/training/trainer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "mir/base/exit_status.h"
#include "mir/checkpoint/archive.h"
#include "mir/checkpoint/state_dict.h"
#include "mir/checkpoint/value.h"
#include "mir/data/synthetic_source.h"
#include "mir/distributed/test_ranks.h"
#include "mir/launch/exit_codes.h"
#include "mir/testing/status_matchers.h"
#include "mir/testing/tensor_matchers.h"
#include "mir/training/run_folder.h"

namespace mir::training {
namespace {

using ::mir::testing::IsOk;
using ::mir::testing::StatusIs;
using ::mir::testing::TensorEq;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

// The smallest model that can learn: one displacement for all, and a
// convolution that gives each voxel its own.
class ShiftModel : public models::RegistrationModel {
 public:
  ShiftModel()
      : convolution_(register_module(
            "flow",
            torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 2, 3).padding(1)))) {
    torch::NoGradGuard no_grad;
    convolution_->weight.mul_(0.01);
    convolution_->bias.zero_();
  }

  models::Registration Register(const at::Tensor& moving,
                                const at::Tensor& fixed) override {
    at::Tensor field = convolution_(torch::cat({moving, fixed}, 1));
    if (calls_++ == nan_at_call) {
      field = field * std::numeric_limits<double>::quiet_NaN();
    }
    return {field, field};
  }
  std::vector<int64_t> SizeMultiple() const override { return {1, 1}; }

  static inline int64_t nan_at_call = -1;

 private:
  torch::nn::Conv2d convolution_;
  int64_t calls_ = 0;
};

// Stands for a hypernetwork: notes what it was called with.
class HyperShiftModel : public ShiftModel {
 public:
  int64_t HyperparameterCount() const override { return 1; }

  models::Registration Register(const at::Tensor& moving,
                                const at::Tensor& fixed) override {
    models::Registration found = ShiftModel::Register(moving, fixed);
    found.hyperparameters = hyperparameters();
    (is_training() ? trained_with : validated_with)
        .push_back(found.hyperparameters.at(0));
    return found;
  }

  static inline std::vector<double> trained_with, validated_with;
};

std::shared_ptr<data::PairSource> Shapes(bool validation) {
  return data::SyntheticSource::Make({.seed = 3,
                                      .size = {16, 16},
                                      .count = validation ? 2 : 5,
                                      .validation = validation})
      .value();
}

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() {
    ShiftModel::nan_at_call = -1;
    options_.steps = 6;
    options_.learning_rate = 0.05;
    options_.similarity = "mse";
    options_.regularizer_weight = 0.01;
    options_.validate_every = 3;
    options_.data.loader_threads = 1;
    environment_.training = Shapes(/*validation=*/false);
    environment_.validation = Shapes(/*validation=*/true);
    choice_.name = "shift";
    choice_.configuration = {{"img_size", {16, 16}}};
    choice_.factory = [](const nlohmann::json&) {
      return std::make_shared<ShiftModel>();
    };
  }

  // A run in a fresh folder of that name.
  absl::Status Run(const std::string& name) {
    options_.out = Folder(name);
    std::filesystem::remove_all(options_.out);
    options_.resume = false;
    return Train(options_, choice_, environment_);
  }

  absl::Status Resume(const std::string& name) {
    options_.out = Folder(name);
    options_.resume = true;
    return Train(options_, choice_, environment_);
  }

  static std::string Folder(const std::string& name) {
    return absl::StrCat(::testing::TempDir(), "/", name);
  }

  static std::vector<nlohmann::json> Metrics(const std::string& name) {
    return RunFolder(Folder(name)).ReadMetrics().value();
  }

  // Without their times.
  static std::vector<nlohmann::json> Lines(const std::string& name) {
    std::vector<nlohmann::json> lines = Metrics(name);
    for (nlohmann::json& line : lines) line.erase("seconds");
    return lines;
  }
  // Those of the steps.
  static std::vector<nlohmann::json> Steps(const std::string& name) {
    std::vector<nlohmann::json> steps;
    for (const nlohmann::json& line : Lines(name)) {
      if (line.contains("loss")) steps.push_back(line);
    }
    return steps;
  }

  static checkpoint::StateDict Weights(const std::string& name) {
    return checkpoint::FindStateDict(
               checkpoint::ReadCheckpoint(RunFolder(Folder(name)).latest())
                   .value())
        .value();
  }

  static void ExpectSameRun(const std::string& a, const std::string& b) {
    EXPECT_EQ(Steps(a), Steps(b));
    const checkpoint::StateDict left = Weights(a);
    const checkpoint::StateDict right = Weights(b);
    ASSERT_EQ(left.entries.size(), right.entries.size());
    for (size_t i = 0; i < left.entries.size(); ++i) {
      EXPECT_EQ(left.entries[i].first, right.entries[i].first);
      EXPECT_THAT(left.entries[i].second, TensorEq(right.entries[i].second));
    }
  }

  TrainOptions options_;
  ModelChoice choice_;
  TrainEnvironment environment_;
};

TEST_F(TrainerTest, LossFallsAndTheFolderIsComplete) {
  options_.steps = 40;
  options_.validate_every = 20;
  ASSERT_THAT(Run("whole"), IsOk());
  const std::vector<nlohmann::json> steps = Steps("whole");
  ASSERT_EQ(steps.size(), 40);
  double first = 0;
  double last = 0;
  for (int i = 0; i < 5; ++i) {
    first += steps[i]["loss"].get<double>();
    last += steps[39 - i]["loss"].get<double>();
  }
  EXPECT_LT(last, first);
  EXPECT_EQ(steps[7]["epoch"], 1);  // 5 pairs an epoch.

  std::vector<int64_t> validated;
  for (const nlohmann::json& line : Metrics("whole")) {
    if (line.contains("val_dice")) validated.push_back(line["step"]);
  }
  EXPECT_EQ(validated, (std::vector<int64_t>{0, 20, 40}));
  for (const char* file : {"config.json", "summary.png",
                           "checkpoints/latest.pth", "checkpoints/best.pth"}) {
    EXPECT_TRUE(std::filesystem::exists(Folder("whole/") + file)) << file;
  }
}

TEST_F(TrainerTest, TheSameRunTwiceIsTheSame) {
  ASSERT_THAT(Run("once"), IsOk());
  options_.data.loader_threads = 3;
  ASSERT_THAT(Run("twice"), IsOk());
  ExpectSameRun("once", "twice");
}

TEST_F(TrainerTest, StoppedAndResumedEqualsUnbroken) {
  for (const char* optimizer : {"adam", "adamw", "sgd"}) {
    options_.optimizer = optimizer;
    ASSERT_THAT(Run("unbroken"), IsOk());
    std::filesystem::remove_all(Folder("stopped"));
    environment_.stop_requested = [] { return Steps("stopped").size() >= 1; };
    const absl::Status stopped = Run("stopped");
    EXPECT_EQ(ExitCodeOf(stopped), launch::kStopped) << stopped;
    EXPECT_EQ(Steps("stopped").size(), 2);
    environment_.stop_requested = [] { return false; };
    ASSERT_THAT(Resume("stopped"), IsOk());
    ExpectSameRun("unbroken", "stopped");
  }
}

TEST_F(TrainerTest, StoppedAnywhereAndResumedEqualsUnbroken) {
  ASSERT_THAT(Run("unbroken"), IsOk());
  for (int stop_after = 1; stop_after <= 5; ++stop_after) {
    SCOPED_TRACE(stop_after);
    std::filesystem::remove_all(Folder("often"));
    // Also within validations, which ask twice: the distance lets the next one
    // get on.
    int asked = 0;
    int next = stop_after;
    environment_.stop_requested = [&] {
      if (++asked != next) return false;
      next += stop_after + 2;
      return true;
    };
    absl::Status status = Run("often");
    int stops = 0;
    while (ExitCodeOf(status) == launch::kStopped && stops < 20) {
      ++stops;
      status = Resume("often");
    }
    EXPECT_THAT(status, IsOk());
    EXPECT_GE(stops, 1);
    ExpectSameRun("unbroken", "often");
    EXPECT_EQ(Lines("unbroken"), Lines("often"));
  }
  environment_.stop_requested = [] { return false; };
}

// Weights alike on all ranks, whatever the global generator gives.
std::shared_ptr<ShiftModel> FixedModel() {
  auto model = std::make_shared<ShiftModel>();
  torch::NoGradGuard no_grad;
  for (const at::Tensor& parameter : model->parameters()) {
    parameter.copy_(
        at::linspace(-0.02, 0.03, parameter.numel()).view_as(parameter));
  }
  return model;
}

TEST_F(TrainerTest, AnotherNumberOfRanksGoesOnWithTheSameCases) {
  choice_.factory = [](const nlohmann::json&) { return FixedModel(); };
  // Not Adam, to which a gradient's rounding may be as much as the gradient.
  options_.optimizer = "sgd";
  options_.batch_size = 2;
  ASSERT_THAT(Run("one_rank"), IsOk());

  // Three steps on two ranks, then the rest on one.
  options_.batch_size = 1;
  options_.steps = 3;
  options_.out = Folder("two_ranks");
  std::filesystem::remove_all(options_.out);
  distributed::RunThreadRanks(2, [&](const distributed::Context& context) {
    TrainEnvironment environment = environment_;
    environment.context = context;
    EXPECT_THAT(Train(options_, choice_, environment), IsOk());
  });
  options_.batch_size = 2;
  options_.steps = 6;
  ASSERT_THAT(Resume("two_ranks"), IsOk());

  const auto expected = Steps("one_rank");
  const auto actual = Steps("two_ranks");
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(actual[i]["loss"].get<double>(),
                expected[i]["loss"].get<double>(),
                1e-5 * std::abs(expected[i]["loss"].get<double>()))
        << i;
  }
}

TEST_F(TrainerTest, AStopWithinAValidationSavesToo) {
  ASSERT_THAT(Run("unbroken"), IsOk());
  std::filesystem::remove_all(Folder("stopped"));
  // The first to ask after the third step is its validation.
  int asked_since = 0;
  environment_.stop_requested = [&] {
    return Steps("stopped").size() == 3 && ++asked_since == 2;
  };
  EXPECT_EQ(ExitCodeOf(Run("stopped")), launch::kStopped);
  EXPECT_EQ(Steps("stopped").size(), 3);
  environment_.stop_requested = [] { return false; };
  ASSERT_THAT(Resume("stopped"), IsOk());
  ExpectSameRun("unbroken", "stopped");
}

TEST_F(TrainerTest, AModelThatFailsInValidationIsNotSaved) {
  options_.validate_every = 0;
  options_.steps = 1;
  // Two calls of the validation before, one of the step.
  ShiftModel::nan_at_call = 3;
  const absl::Status status = Run("fails");
  EXPECT_EQ(ExitCodeOf(status), launch::kNumeric) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("in 1 of 2 validation cases at step 1"));
  EXPECT_EQ(checkpoint::ReadCheckpoint(RunFolder(Folder("fails")).latest())
                ->Find("step")
                ->integer(),
            0);
}

TEST_F(TrainerTest, ALongerRunGoesOn) {
  ASSERT_THAT(Run("long"), IsOk());
  options_.steps = 3;
  ASSERT_THAT(Run("short"), IsOk());
  options_.steps = 6;
  ASSERT_THAT(Resume("short"), IsOk());
  ExpectSameRun("long", "short");
}

TEST_F(TrainerTest, AResumedRunGoesOnInTheLearningRatesSchedule) {
  options_.learning_rate_schedule = "cosine";
  ASSERT_THAT(Run("unbroken_cosine"), IsOk());
  std::filesystem::remove_all(Folder("stopped_cosine"));
  environment_.stop_requested = [] {
    return Steps("stopped_cosine").size() >= 2;
  };
  EXPECT_EQ(ExitCodeOf(Run("stopped_cosine")), launch::kStopped);
  environment_.stop_requested = [] { return false; };
  ASSERT_THAT(Resume("stopped_cosine"), IsOk());
  ExpectSameRun("unbroken_cosine", "stopped_cosine");
  const std::vector<nlohmann::json> steps = Steps("stopped_cosine");
  ASSERT_EQ(steps.size(), 6);
  EXPECT_EQ(steps.front()["lr"], 0.05);
  EXPECT_NEAR(steps[3]["lr"].get<double>(), 0.025, 1e-12);
}

TEST_F(TrainerTest, TakesUpATrainingOfPython) {
  ASSERT_THAT(Run("long"), IsOk());
  options_.steps = 3;
  ASSERT_THAT(Run("python"), IsOk());
  // What Python's users save: no step, and nothing of ours.
  const std::string path = RunFolder(Folder("python")).latest();
  const checkpoint::Value ours = checkpoint::ReadCheckpoint(path).value();
  checkpoint::Dict file;
  for (const char* key : {"epoch", "state_dict", "optimizer"}) {
    file.Set(key, *ours.Find(key));
  }
  ASSERT_THAT(checkpoint::WriteCheckpoint(path, file), IsOk());
  options_.steps = 6;
  ASSERT_THAT(Resume("python"), IsOk());
  ExpectSameRun("long", "python");
}

TEST_F(TrainerTest, ALossThatIsNotFiniteStopsBeforeTheWeights) {
  options_.validate_every = 0;
  environment_.validation = nullptr;
  ShiftModel::nan_at_call = 4;
  const absl::Status status = Run("nan");
  EXPECT_EQ(ExitCodeOf(status), launch::kNumeric) << status;
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kOutOfRange,
                               HasSubstr("not finite at step 5")));
  options_.skip_nonfinite = 1;
  ASSERT_THAT(Run("nan_skipped"), IsOk());
  const std::vector<nlohmann::json> steps = Steps("nan_skipped");
  ASSERT_EQ(steps.size(), 6);
  EXPECT_EQ(steps[4]["updated"], false);
  EXPECT_TRUE(steps[4]["loss"].is_null());
  EXPECT_EQ(steps[5]["updated"], true);
}

TEST_F(TrainerTest, NamesWhatCannotBeResumed) {
  EXPECT_EQ(ExitCodeOf(Resume("never_begun")), launch::kCheckpoint);
  ASSERT_THAT(Run("other_model"), IsOk());
  choice_.factory = [](const nlohmann::json&)
      -> absl::StatusOr<std::shared_ptr<models::RegistrationModel>> {
    auto model = std::make_shared<ShiftModel>();
    model->register_parameter("extra", torch::zeros({2}));
    return model;
  };
  const absl::Status status = Resume("other_model");
  EXPECT_EQ(ExitCodeOf(status), launch::kCheckpoint);
  EXPECT_THAT(std::string(status.message()), HasSubstr("extra"));
}

TEST_F(TrainerTest, RefusesAnotherRunsFolder) {
  ASSERT_THAT(Run("mine"), IsOk());
  options_.resume = false;
  EXPECT_EQ(ExitCodeOf(Train(options_, choice_, environment_)),
            launch::kEnvironment);
}

TEST_F(TrainerTest, AHypernetworkTrainsWithRandomHyperparameters) {
  choice_.factory = [](const nlohmann::json&) {
    return std::make_shared<HyperShiftModel>();
  };
  HyperShiftModel::trained_with.clear();
  HyperShiftModel::validated_with.clear();
  options_.hyperparameters = {1};
  ASSERT_THAT(Run("hyper"), IsOk());
  const std::vector<double>& drawn = HyperShiftModel::trained_with;
  ASSERT_EQ(drawn.size(), 6u);
  EXPECT_EQ(std::set<double>(drawn.begin(), drawn.end()).size(), 6u);
  EXPECT_THAT(drawn, Each(AllOf(Ge(0), Le(1))));
  EXPECT_THAT(HyperShiftModel::validated_with, Each(1));
  // All of the loss is the penalty, on a field that is nearly constant.
  EXPECT_LT(Metrics("hyper").front().at("val_loss").get<double>(), 1e-4);
  options_.hyperparameters = {0};
  ASSERT_THAT(Run("hyper0"), IsOk());
  EXPECT_GT(Metrics("hyper0").front().at("val_loss").get<double>(), 1e-3);

  options_.hyperparameters = {0.1, 0.2};
  const absl::Status two = Run("hyper2");
  EXPECT_THAT(two, StatusIs(absl::StatusCode::kInvalidArgument,
                            HasSubstr("takes 1 hyperparameters (--hyper)")));
  EXPECT_EQ(ExitCodeOf(two), launch::kArguments);
}

TEST_F(TrainerTest, RefusesToSynchroniseWhatIsNotThere) {
  options_.sync_batchnorm = true;
  const absl::Status status = Run("no_batchnorm");
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("no batch normalisation")));
  EXPECT_EQ(ExitCodeOf(status), launch::kArguments);
}

TEST_F(TrainerTest, RefusesHyperparametersForAnotherModel) {
  options_.hyperparameters = {0.5};
  EXPECT_THAT(Run("no_hyper"), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("is no hypernetwork")));
}

}  // namespace
}  // namespace mir::training
