#include "mir/training/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "mir/testing/status_matchers.h"

namespace mir::training {
namespace {

using ::mir::testing::IsOk;
using ::mir::testing::StatusIs;
using ::testing::HasSubstr;

TrainOptions Good() {
  TrainOptions options;
  options.steps = 10;
  return options;
}

TEST(OptionsTest, DefaultsWithALengthAreGood) {
  EXPECT_THAT(CheckOptions(Good()), IsOk());
}

TEST(OptionsTest, NamesTheFirstOptionThatCannotBe) {
  struct Case {
    std::function<void(TrainOptions&)> spoil;
    const char* message;
  };
  for (const Case& wrong : std::vector<Case>{
           {[](TrainOptions& o) { o.steps = 0; }, "--steps or --epochs"},
           {[](TrainOptions& o) { o.epochs = 3; }, "give one"},
           {[](TrainOptions& o) { o.steps = -1; }, "--steps must be from 0 to"},
           {[](TrainOptions& o) { o.batch_size = 0; }, "--batch-size"},
           {[](TrainOptions& o) { o.batch_size = int64_t{1} << 62; },
            "--batch-size must be from 1 to 4096"},
           {[](TrainOptions& o) { o.accumulate = 0; }, "--accumulate"},
           {[](TrainOptions& o) {
              o.learning_rate = std::numeric_limits<double>::quiet_NaN();
            },
            "--lr must be a number above 0"},
           {[](TrainOptions& o) { o.regularizer_weight = -1; },
            "--regularizer-weight"},
           {[](TrainOptions& o) { o.optimizer = "adan"; },
            "did you mean adam?"},
           {[](TrainOptions& o) { o.learning_rate_schedule = "step"; },
            "--lr-schedule must be one of constant, poly, cosine"},
           {[](TrainOptions& o) {
              o.optimizer = "sgd";
              o.amsgrad = true;
            },
            "--amsgrad is for adam and adamw"},
           {[](TrainOptions& o) { o.weight_decay = 1e6; }, "--weight-decay"},
           {[](TrainOptions& o) { o.gradient_compression = "int8"; },
            "--gradient-compression must be one of none, bf16, fp16"},
           {[](TrainOptions& o) { o.precision = "fp8"; }, "fp8"},
           {[](TrainOptions& o) { o.device = "gpu"; },
            "--device must be one of auto, cpu, cuda"},
           {[](TrainOptions& o) { o.warp_convention = "old"; },
            "--warp-convention"},
           {[](TrainOptions& o) { o.data.atlas = "brain.nii"; },
            "--atlas-labels"},
           {[](TrainOptions& o) {
              o.data.atlas = o.data.atlas_labels = o.data.list = "x";
            },
            "two sources"},
           {[](TrainOptions& o) { o.data.size = {64}; }, "--size"},
           {[](TrainOptions& o) {
              o.data.size = {64, 64, 4};
            },
            "from 8 to 4096, got 4"},
           {[](TrainOptions& o) { o.data.loader_threads = 0; },
            "--loader-threads"},
           {[](TrainOptions& o) { o.threads = -2; }, "--threads"},
       }) {
    TrainOptions options = Good();
    wrong.spoil(options);
    EXPECT_THAT(
        CheckOptions(options),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(wrong.message)));
  }
}

}  // namespace
}  // namespace mir::training
