#include "mir/training/objective.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/status/status.h"
#include "mir/testing/status_matchers.h"

namespace mir::training {
namespace {

using ::mir::testing::StatusIs;
using ::testing::HasSubstr;

constexpr int64_t kSide = 4;

// A field that grows by 0.5 per voxel along d: the l2 penalty, a mean over
// three channels and three axes, is 0.25 / 9.
constexpr double kPenalty = 0.25 / 9;

models::Registration Sheared() {
  const at::Tensor field = at::zeros({1, 3, kSide, kSide, kSide});
  field.select(1, 0).copy_(0.5 * at::arange(kSide).view({kSide, 1, 1}));
  return {.displacement = field, .regularized = field};
}

TrainOptions Options(const std::string& prior = "") {
  TrainOptions options;
  options.similarity = "mse";
  options.similarity_weight = 0;
  options.regularizer_weight = 3;
  options.prior = prior;
  return options;
}

double Total(const TrainOptions& options, const models::Registration& found) {
  const at::Tensor image = at::zeros({1, 1, kSide, kSide, kSide});
  return (*Objective::Make(options))(found, image, image).total.item<double>();
}

TEST(ObjectiveTest, WeighsThePenaltyOfTheField) {
  EXPECT_NEAR(Total(Options(), Sheared()), 3 * kPenalty, 1e-6);
}

TEST(ObjectiveTest, AHyperparameterSharesOutTheLoss) {
  models::Registration found = Sheared();
  found.hyperparameters = {0.4};
  EXPECT_NEAR(Total(Options(), found), 0.4 * 3 * kPenalty, 1e-6);
}

TEST(ObjectiveTest, WeightsOfTheModelScaleThePenaltyAndHaveAPrior) {
  models::Registration found = Sheared();
  found.weights = at::full({1, 1, kSide, kSide, kSide}, 0.5).requires_grad_();
  const double prior = -2.35 * std::log(0.5);  // (1 - alpha) log(w)
  EXPECT_NEAR(Total(Options("beta:3.35"), found), 0.5 * 3 * kPenalty + prior,
              1e-5);

  const at::Tensor image = at::zeros({1, 1, kSide, kSide, kSide});
  const LossTerms terms =
      (*Objective::Make(Options("beta:3.35")))(found, image, image);
  EXPECT_NEAR(terms.prior.item<double>(), prior, 1e-5);
  terms.total.backward();
  EXPECT_GT(found.weights.grad().abs().min().item<double>(), 0);

  // Of two hyperparameters the first scales the prior, the last shares out.
  found.hyperparameters = {0.5, 0.2};
  EXPECT_NEAR(Total(Options("beta:3.35"), found),
              0.2 * (0.5 * 3 * kPenalty + 0.5 * prior), 1e-5);
}

TEST(ObjectiveTest, WeightsAndAPriorBelongTogether) {
  models::Registration found = Sheared();
  EXPECT_THROW(Total(Options("beta:3.35"), found), c10::ValueError);
  found.weights = at::full({1, 1, kSide, kSide, kSide}, 0.5);
  EXPECT_THROW(Total(Options(), found), c10::ValueError);
  TrainOptions options = Options("beta:3.35");
  options.regularizer = "bending";
  EXPECT_THAT(Objective::Make(options).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("regularizer with weights")));
  EXPECT_THAT(
      Objective::Make(Options("beta")).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("unknown prior")));
}

}  // namespace
}  // namespace mir::training
