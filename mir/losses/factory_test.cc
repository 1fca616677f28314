#include "mir/losses/factory.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "mir/losses/gradient_penalty.h"
#include "mir/losses/local_ncc.h"
#include "mir/losses/mse.h"
#include "mir/losses/weight_priors.h"
#include "mir/precision/autocast.h"
#include "mir/testing/status_matchers.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::losses {
namespace {

using mir::testing::IsOk;
using mir::testing::StatusIs;
using mir::testing::TensorEq;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

at::Tensor Random(at::IntArrayRef sizes, uint64_t seed) {
  return at::rand(sizes, at::detail::createCPUGenerator(seed),
                  at::TensorOptions(at::kFloat));
}

TEST(FactoryTest, NamesMakeTheirLosses) {
  const at::Tensor fixed = Random({1, 1, 10, 11, 12}, 1);
  const at::Tensor moving = Random({1, 1, 10, 11, 12}, 2);
  EXPECT_THAT((*MakeSimilarity("ncc"))(fixed, moving),
              TensorEq(LocalNcc()(fixed, moving)));
  EXPECT_THAT((*MakeSimilarity("mse"))(fixed, moving),
              TensorEq(Mse()(fixed, moving)));

  const at::Tensor field = Random({1, 3, 5, 6, 7}, 3);
  GradientPenaltyOptions options;
  options.norm = GradientNorm::kL1;
  EXPECT_THAT((*MakeRegularizer("l1"))(field),
              TensorEq(GradientPenalty(options)(field)));
  options.norm = GradientNorm::kL2;
  EXPECT_THAT((*MakeRegularizer("l2"))(field),
              TensorEq(GradientPenalty(options)(field)));
}

TEST(FactoryTest, RegularizersTakeWeightsAndWeightsAPrior) {
  const at::Tensor field = Random({1, 3, 5, 6, 7}, 1);
  const at::Tensor weights = Random({1, 1, 5, 6, 7}, 2);
  EXPECT_THAT((*MakeLocalRegularizer("l2"))(field, weights),
              TensorEq(GradientPenalty()(field, weights)));
  for (const std::string& name : LocalRegularizerNames()) {
    EXPECT_GT((*MakeLocalRegularizer(name))(field, weights).item<double>(), 0);
  }
  EXPECT_THAT(MakeLocalRegularizer("bending"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("wanted one of l1, l2, tv")));
  EXPECT_THAT((*MakeWeightPrior("beta:3.35"))(weights),
              TensorEq(LogBeta(weights, 3.35)));
  EXPECT_THAT((*MakeWeightPrior("gaussian:2"))(weights),
              TensorEq(LogGaussian(weights, 2)));
  for (const char* name : {"", "beta", "beta:", "beta:1", "beta:nan", "gamma:2",
                           "gaussian:0", "gaussian:-1", "beta:2:3"}) {
    EXPECT_THAT(MakeWeightPrior(name),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("wanted beta:ALPHA")))
        << name;
  }
}

TEST(FactoryTest, EveryListedNameComputesAScalar) {
  EXPECT_THAT(SimilarityNames(), Contains("mir.ncc_vxm"));
  const at::Tensor fixed = Random({1, 1, 10, 11, 12}, 1);
  const at::Tensor moving = Random({1, 1, 10, 11, 12}, 2).requires_grad_();
  for (const std::string& name : SimilarityNames()) {
    const auto similarity = MakeSimilarity(name);
    ASSERT_THAT(similarity, IsOk());
    const at::Tensor value = (*similarity)(fixed, moving);
    EXPECT_EQ(value.dim(), 0) << name;
    EXPECT_TRUE(value.requires_grad()) << name;
  }
  for (const std::string& name : RegularizerNames()) {
    const auto regularizer = MakeRegularizer(name);
    ASSERT_THAT(regularizer, IsOk());
    EXPECT_EQ((*regularizer)(Random({1, 2, 5, 6}, 1)).dim(), 0) << name;
  }
}

TEST(FactoryTest, AnUnknownNameListsAllAndSuggestsTheNearest) {
  EXPECT_THAT(MakeSimilarity("nnc"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("unknown similarity \"nnc\""),
                             HasSubstr("ncc, ncc_gauss, ncc_multiscale, mi"),
                             HasSubstr("did you mean ncc?"))));
  EXPECT_THAT(MakeSimilarity("mir.ncc_vmx"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("did you mean mir.ncc_vxm?")));
  EXPECT_THAT(MakeRegularizer("l3"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("unknown regularizer \"l3\""),
                             HasSubstr("l1, l2"))));
}

// What each loss with a name must stand: the property that a training relies
// on, whatever its data.
struct Pair {
  std::string name;
  at::Tensor fixed, moving;
};

std::vector<Pair> HardPairs() {
  const std::vector<int64_t> sizes = {1, 1, 6, 7, 8};
  const at::Tensor a = Random(sizes, 1), b = Random(sizes, 2);
  const at::Tensor zeros = at::zeros(sizes);
  at::Tensor empty_border = a.clone();
  empty_border.slice(2, 0, 3).fill_(0);
  return {
      {"zeros", zeros, zeros.clone()},
      {"constants", zeros + 0.5, zeros + 0.25},
      {"large constants", zeros + 1e4, zeros - 1e4},
      {"an image and zeros", a, zeros},
      {"zeros and an image", zeros, b},
      {"empty background", empty_border, b},
      {"nearly flat", 200 + 0.01 * a, 200 + 0.01 * b},
      {"0 to 255", 255 * a, 255 * b},
      {"Hounsfield units", 4000 * a - 1000, 4000 * b - 1000},
      {"two levels", (a > 0.5).to(at::kFloat), (b > 0.5).to(at::kFloat)},
      {"one voxel of a label", (a == a.max()).to(at::kFloat), zeros},
      {"an axis of one voxel", Random({1, 1, 1, 7, 8}, 1),
       Random({1, 1, 1, 7, 8}, 2)},
      {"two axes of one voxel", Random({1, 1, 5, 1, 1}, 1),
       Random({1, 1, 5, 1, 1}, 2)},
      {"one voxel", Random({1, 1, 1, 1, 1}, 1), Random({1, 1, 1, 1, 1}, 2)},
      {"two dimensions", Random({2, 2, 7, 8}, 1), Random({2, 2, 7, 8}, 2)},
  };
}

TEST(FactoryPropertiesTest, EveryPlainLossIsFiniteWhateverTheImages) {
  for (const std::string& name : SimilarityNames()) {
    if (name.rfind("mir.", 0) == 0) continue;
    const Similarity loss = *MakeSimilarity(name);
    for (const Pair& pair : HardPairs()) {
      const at::Tensor fixed = pair.fixed.clone().requires_grad_();
      const at::Tensor moving = pair.moving.clone().requires_grad_();
      const at::Tensor value = loss(fixed, moving);
      EXPECT_TRUE(value.isfinite().item<bool>()) << name << ": " << pair.name;
      value.backward();
      EXPECT_TRUE(fixed.grad().isfinite().all().item<bool>())
          << name << ": " << pair.name;
      EXPECT_TRUE(moving.grad().isfinite().all().item<bool>())
          << name << ": " << pair.name;
      if (name.rfind("ncc", 0) == 0) {
        EXPECT_LE(value.item<double>(), 0) << name << ": " << pair.name;
        EXPECT_GE(value.item<double>(), -1) << name << ": " << pair.name;
      }
    }
  }
}

TEST(FactoryPropertiesTest, HalfInputsAndAutocastChangeNothing) {
  const at::Tensor a = Random({1, 1, 10, 11, 12}, 1);
  const at::Tensor b = Random({1, 1, 10, 11, 12}, 2);
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    const at::Tensor f = a.to(dtype), m = b.to(dtype);
    for (const std::string& name : SimilarityNames()) {
      const Similarity loss = *MakeSimilarity(name);
      const at::Tensor own = m.to(at::kFloat).requires_grad_();
      const at::Tensor expected = loss(f.to(at::kFloat), own);
      expected.backward();
      const precision::Autocast autocast(at::kCPU,
                                         precision::Precision::kBFloat16);
      const at::Tensor narrow = m.clone().requires_grad_();
      const at::Tensor found = loss(f, narrow);
      found.backward();
      EXPECT_THAT(found, TensorEq(expected)) << name;
      EXPECT_THAT(narrow.grad(), TensorEq(own.grad().to(dtype))) << name;
    }
  }
  const at::Tensor field = Random({1, 3, 6, 7, 8}, 3).to(at::kHalf);
  for (const std::string& name : RegularizerNames()) {
    const Regularizer loss = *MakeRegularizer(name);
    const precision::Autocast autocast(at::kCPU,
                                       precision::Precision::kBFloat16);
    EXPECT_THAT(loss(field), TensorEq(loss(field.to(at::kFloat)))) << name;
  }
}

TEST(FactoryPropertiesTest, WhatIsNotFiniteIsRefusedWithItsIndex) {
  const at::Tensor good = Random({1, 1, 10, 11, 12}, 1);
  for (const float value : {std::nanf(""), HUGE_VALF}) {
    at::Tensor bad = good.clone();
    bad[0][0][2][3][4] = value;
    const auto expect_refused = [](const std::string& name, const auto& call) {
      try {
        call();
        ADD_FAILURE() << name << " takes what is not finite";
      } catch (const c10::ValueError& error) {
        EXPECT_THAT(error.what_without_backtrace(), HasSubstr("2, 3, 4]"))
            << name;
      }
    };
    for (const std::string& name : SimilarityNames()) {
      const Similarity loss = *MakeSimilarity(name);
      expect_refused(name, [&] { loss(good, bad); });
      expect_refused(name, [&] { loss(bad, good); });
    }
    for (const std::string& name : RegularizerNames()) {
      const Regularizer loss = *MakeRegularizer(name);
      const at::Tensor field = at::cat({good, bad, good}, 1);
      expect_refused(name, [&] { loss(field); });
    }
  }
}

TEST(FactoryPropertiesTest, EveryRegularizerIsFiniteAndKeepsTheGraph) {
  for (const std::string& name : RegularizerNames()) {
    const Regularizer loss = *MakeRegularizer(name);
    for (const std::vector<int64_t>& sizes :
         std::vector<std::vector<int64_t>>{{1, 3, 6, 7, 8},
                                           {1, 3, 1, 7, 8},
                                           {2, 3, 2, 1, 3},
                                           {1, 3, 1, 1, 1},
                                           {1, 2, 4, 5}}) {
      for (const double scale : {0.0, 1.0, 1e4}) {
        const at::Tensor field = (Random(sizes, 1) * scale).requires_grad_();
        const at::Tensor value = loss(field);
        EXPECT_TRUE(value.isfinite().item<bool>()) << name;
        value.backward();
        EXPECT_TRUE(field.grad().isfinite().all().item<bool>()) << name;
      }
    }
  }
}

}  // namespace
}  // namespace mir::losses
