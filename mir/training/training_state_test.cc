#include "mir/training/training_state.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "absl/status/status.h"
#include "mir/checkpoint/archive.h"
#include "mir/checkpoint/state_dict.h"
#include "mir/models/registration_model.h"
#include "mir/testing/status_matchers.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::training {
namespace {

using ::mir::testing::IsOk;
using ::mir::testing::StatusIs;
using ::mir::testing::TensorEq;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Scale : public models::RegistrationModel {
 public:
  Scale() { weight = register_parameter("weight", at::ones({3})); }

  models::Registration Register(const at::Tensor& moving,
                                const at::Tensor&) override {
    return {moving, moving};
  }
  std::vector<int64_t> SizeMultiple() const override { return {1, 1, 1}; }

  at::Tensor weight;
};

std::string Saved(const at::Tensor& weight) {
  const std::string path = ::testing::TempDir() + "/weights.pth";
  EXPECT_THAT(checkpoint::WriteCheckpoint(
                  path, checkpoint::ToValue(
                            {.entries = {{"weight", weight}}, .versions = {}})),
              IsOk());
  return path;
}

TEST(LoadWeightsTest, TakesFiniteWeightsOfThatShapeAlone) {
  Scale model;
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double value :
       {std::numeric_limits<double>::quiet_NaN(), infinity, -infinity}) {
    at::Tensor weight = at::full({3}, 2.0);
    weight[1] = value;
    EXPECT_THAT(
        LoadWeights(Saved(weight), model),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr("weights.pth"),
                       HasSubstr("the weights weight are not finite"))));
  }
  EXPECT_THAT(LoadWeights(Saved(at::full({4}, 2.0)), model),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("[4]")));
  EXPECT_THAT(model.weight.detach(), TensorEq(at::ones({3})));
  EXPECT_THAT(LoadWeights(Saved(at::full({3}, 2.0)), model), IsOk());
  EXPECT_THAT(model.weight.detach(), TensorEq(at::full({3}, 2.0)));
}

}  // namespace
}  // namespace mir::training
