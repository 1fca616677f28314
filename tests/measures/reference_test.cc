// Measures of real label maps against MONAI, SciPy and SimpleITK: stored in
// reference.pt by make_reference.py, which says what it holds.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "mir/geometry/jacobian.h"
#include "mir/metrics/dice.h"
#include "mir/metrics/digital_diffeomorphism.h"
#include "mir/metrics/folding.h"
#include "mir/metrics/surface_distance.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::metrics {
namespace {

using ::mir::testing::AllClose;
using ::testing::Pointwise;

constexpr double kFloatEpsilon = 1.2e-7;

// Each pair is equal to a few float32 roundings: MONAI computes in that.
MATCHER(IsSameMeasure, "") {
  const auto& [actual, expected] = arg;
  if (std::isinf(expected)) return actual == expected;
  return std::abs(actual - expected) <= 8 * kFloatEpsilon * expected;
}

class ReferenceTest : public ::testing::Test {
 protected:
  ReferenceTest() {
    std::ifstream file("tests/measures/reference.pt", std::ios::binary);
    reference_ = torch::jit::pickle_load({std::istreambuf_iterator<char>(file),
                                          std::istreambuf_iterator<char>()});
    displacement_ =
        (Tensor("displacement").to(at::kDouble) / 16).unsqueeze(/*dim=*/0);
    const at::Tensor labels = Tensor("labels");
    labels_.assign(labels.const_data_ptr<int64_t>(),
                   labels.const_data_ptr<int64_t>() + labels.numel());
  }

  at::Tensor Tensor(const std::string& name) const {
    return reference_.toGenericDict().at(name).toTensor();
  }
  std::vector<double> Numbers(const std::string& name) const {
    const at::Tensor tensor = Tensor(name);
    const double* values = tensor.const_data_ptr<double>();
    return {values, values + tensor.numel()};
  }

  c10::IValue reference_;
  at::Tensor displacement_;
  std::vector<int64_t> labels_;
};

TEST_F(ReferenceTest, DiceIsMonais) {
  const DiceScores scores = Dice(Tensor("a"), Tensor("b"), labels_);
  EXPECT_THAT(scores.dice, Pointwise(IsSameMeasure(), Numbers("dice")));
  EXPECT_GT(scores.labels.size(), 20);
}

TEST_F(ReferenceTest, SurfaceDistancesAreMonais) {
  const SurfaceDistances found =
      CompareSurfaces(Tensor("a"), Tensor("b"), Numbers("spacing_mm"), labels_);
  EXPECT_THAT(found.hd95_mm, Pointwise(IsSameMeasure(), Numbers("hd95_mm")));
  EXPECT_THAT(found.average_mm,
              Pointwise(IsSameMeasure(), Numbers("average_mm")));
  EXPECT_GE(found.missing, 2);
}

TEST_F(ReferenceTest, TheJacobianIsSimpleItks) {
  const at::Tensor expected = Tensor("jacobian");
  EXPECT_THAT(StencilJacobian(displacement_, JacobianStencil::kCentral)[0],
              AllClose(expected, 8 * kFloatEpsilon));
  at::Tensor inside = geometry::JacobianDeterminant(displacement_)[0];
  for (int64_t axis = 0; axis < 3; ++axis) {
    inside = inside.narrow(axis, 1, inside.size(axis) - 2);
  }
  EXPECT_THAT(inside, AllClose(expected, 8 * kFloatEpsilon));
}

TEST_F(ReferenceTest, FoldingFollowsFromThatJacobian) {
  const double sd = Tensor("sd_log_jacobian").item<double>();
  EXPECT_NEAR(SdLogJacobian(displacement_), sd, 8 * kFloatEpsilon * sd);
  const DiffeomorphismMeasures measures = MeasureDiffeomorphism(displacement_);
  EXPECT_GT(measures.non_diffeomorphic_voxels, 0);
  EXPECT_DOUBLE_EQ(static_cast<double>(measures.non_diffeomorphic_voxels) /
                       static_cast<double>(measures.voxels),
                   Tensor("folded_inside").item<double>());
}

}  // namespace
}  // namespace mir::metrics
