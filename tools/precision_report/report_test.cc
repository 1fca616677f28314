#include "tools/precision_report/report.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "mir/testing/status_matchers.h"

namespace mir::tools {
namespace {

using mir::testing::IsOk;
using mir::testing::StatusIs;
using ::testing::HasSubstr;

at::Tensor Random(at::IntArrayRef sizes, uint64_t seed) {
  return at::rand(sizes, at::detail::createCPUGenerator(seed),
                  at::TensorOptions(at::kFloat));
}

at::Tensor Sum(const std::vector<at::Tensor>& inputs) {
  return inputs.back().sum();
}

TEST(CompareTest, WhatEveryTypeHoldsHasNoError) {
  const ReportRow row = Compare("sum", Sum, {at::full({1, 1, 2, 2}, 0.5)});
  EXPECT_EQ(row.name, "sum");
  EXPECT_EQ(row.exact, 2);
  for (const Deviation& one : row.deviations) {
    EXPECT_EQ(one.value, 2);
    EXPECT_EQ(one.value_error, 0);
    EXPECT_EQ(one.gradient_error, 0);
  }
}

TEST(CompareTest, RoundingGrowsWithFewerDigits) {
  // Squares of 1 + 2^-9, which bfloat16 rounds to 1 and float16 holds.
  const double value = 1 + 1.0 / 512;
  const ReportRow row = Compare("squares",
                                [](const std::vector<at::Tensor>& inputs) {
                                  return inputs[0].to(at::kDouble).square();
                                },
                                {at::full({1, 1, 2, 2}, value)});
  EXPECT_EQ(row.deviations[0].value_error, 0);
  EXPECT_EQ(row.deviations[1].value_error, 0);
  EXPECT_NEAR(row.deviations[2].value_error, 1 - 1 / (value * value), 1e-15);
  EXPECT_NEAR(row.deviations[2].gradient_error, 1 - 1 / value, 1e-15);
}

TEST(CompareTest, AnOverflowIsAnInfiniteError) {
  const ReportRow row = Compare("sum", Sum, {at::full({1, 1, 2, 2}, 65000.)});
  EXPECT_EQ(row.deviations[1].value_error,
            std::numeric_limits<double>::infinity());
  const nlohmann::ordered_json json = AsJson({row});
  EXPECT_TRUE(json[0]["fp16"]["value_error"].is_null());
  EXPECT_EQ(json[0]["fp16"]["gradient_error"], 0);
  EXPECT_THAT(AsTable({row}), HasSubstr("inf"));
}

TEST(ReportTest, LossesAndWarpsStayNearFloat64) {
  const at::Tensor fixed = Random({1, 1, 10, 11, 12}, 1);
  const at::Tensor moving = 0.5 * fixed + 0.5 * Random({1, 1, 10, 11, 12}, 2);
  const at::Tensor field = Random({1, 3, 10, 11, 12}, 3);
  const auto similarities =
      CompareSimilarities({"ncc", "mi", "mir.ncc_vxm"}, fixed, moving);
  const auto regularizers = CompareRegularizers({"l2", "bending"}, field);
  ASSERT_THAT(similarities, IsOk());
  ASSERT_THAT(regularizers, IsOk());
  std::vector<ReportRow> rows = CompareWarps(moving, field);
  EXPECT_EQ(rows.size(), 4u);
  rows.insert(rows.end(), similarities->begin(), similarities->end());
  rows.insert(rows.end(), regularizers->begin(), regularizers->end());
  for (const ReportRow& row : rows) {
    const double epsilons[] = {1.2e-7, 9.8e-4, 7.9e-3};
    for (int i = 0; i < 3; ++i) {
      EXPECT_LT(row.deviations[i].value_error, 32 * epsilons[i])
          << row.name << " in " << kReported[i];
    }
  }
}

TEST(ReportTest, AnUnknownNameIsSaid) {
  const at::Tensor image = Random({1, 1, 4, 4, 4}, 1);
  EXPECT_THAT(CompareSimilarities({"nnc"}, image, image),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("did you mean ncc?")));
}

TEST(ReportTest, TheTableHasALineForEachFunction) {
  const std::string table = AsTable(
      CompareWarps(Random({1, 1, 4, 4, 4}, 1), at::zeros({1, 3, 4, 4, 4})));
  EXPECT_THAT(table, HasSubstr("fp16"));
  EXPECT_THAT(table, HasSubstr("\nwarp (MIR's convention)"));
  EXPECT_THAT(table, HasSubstr("\njacobian determinant"));
}

}  // namespace
}  // namespace mir::tools
