#include "mir/losses/factory.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/rand.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mir/losses/gradient_penalty.h"
#include "mir/losses/local_ncc.h"
#include "mir/losses/mse.h"
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
                             HasSubstr("ncc, mse, mir.ncc_vxm"),
                             HasSubstr("did you mean ncc?"))));
  EXPECT_THAT(MakeSimilarity("mir.ncc_vmx"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("did you mean mir.ncc_vxm?")));
  EXPECT_THAT(MakeRegularizer("l3"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("unknown regularizer \"l3\""),
                             HasSubstr("l1, l2"))));
}

}  // namespace
}  // namespace mir::losses
