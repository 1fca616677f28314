#include "mir/metrics/digital_diffeomorphism.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "mir/geometry/jacobian.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::metrics {
namespace {

using ::mir::testing::AllClose;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int kStencils = 11;

at::Tensor Inside(at::Tensor volumes) {
  for (int64_t axis = 1; axis < 4; ++axis) {
    volumes = volumes.narrow(axis, 1, volumes.size(axis) - 2);
  }
  return volumes;
}

at::Tensor RandomField(double size) {
  return at::rand({2, 3, 6, 7, 5}, at::detail::createCPUGenerator(1),
                  at::TensorOptions(at::kDouble)) *
         size;
}

TEST(StencilJacobianTest, AnAffineMappingHasItsDeterminantByEveryStencil) {
  // x + u(x) = A x, with det(A) = 1.5 * (1.25 * 0.5 + 0.125) - 0.25 * 0.5.
  const double a[3][3] = {{1.5, 0.25, 0}, {1, 1.25, -0.25}, {0, 0.5, 0.5}};
  const double determinant = 1.5 * (1.25 * 0.5 + 0.25 * 0.5) - 0.25 * 0.5;
  const int64_t size[3] = {4, 5, 6};
  at::Tensor field = at::zeros({1, 3, 4, 5, 6}, at::kDouble);
  for (int row = 0; row < 3; ++row) {
    for (int axis = 0; axis < 3; ++axis) {
      std::vector<int64_t> along(3, 1);
      along[axis] = size[axis];
      field[0][row] += (a[row][axis] - (row == axis ? 1 : 0)) *
                       at::arange(size[axis], at::kDouble).view(along);
    }
  }
  // The tetrahedra in the middle are twice those at a corner.
  for (int i = 0; i < kStencils; ++i) {
    const double volumes = i < 9 ? 1 : 2;
    EXPECT_THAT(
        StencilJacobian(field, static_cast<JacobianStencil>(i)),
        AllClose(at::zeros({1, 2, 3, 4}) + volumes * determinant, 4e-15))
        << i;
  }
  EXPECT_EQ(MeasureDiffeomorphism(field).non_diffeomorphic_volume, 0);
}

TEST(StencilJacobianTest, CentralOneIsTheJacobianDeterminantInside) {
  const at::Tensor field = RandomField(3);
  const at::Tensor expected = Inside(geometry::JacobianDeterminant(field));
  EXPECT_THAT(StencilJacobian(field, JacobianStencil::kCentral),
              AllClose(expected, 1e-15));
  EXPECT_THAT(StencilJacobian(field.to(at::kFloat), JacobianStencil::kCentral),
              AllClose(expected, 1e-6));
}

TEST(StencilJacobianTest, OneSidedStencilsLookToTheSideTheySay) {
  // u is 1 at one voxel, along d: only differences that reach it see it.
  at::Tensor field = at::zeros({1, 3, 5, 3, 3});
  field[0][0][3][1][1] = 1;
  const auto at_plane_2 = [&](JacobianStencil stencil) {
    return StencilJacobian(field, stencil)[0][1][0][0].item<double>();
  };
  EXPECT_EQ(at_plane_2(JacobianStencil::kPlusMinusPlus), 2);
  EXPECT_EQ(at_plane_2(JacobianStencil::kMinusPlusPlus), 1);
  EXPECT_EQ(at_plane_2(JacobianStencil::kCentral), 1.5);
}

TEST(MeasureDiffeomorphismTest, ZeroDisplacementIsOne) {
  for (const at::ScalarType dtype :
       {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    const DiffeomorphismMeasures measures =
        MeasureDiffeomorphism(at::zeros({1, 3, 4, 5, 6}, dtype));
    EXPECT_EQ(measures.voxels, 2 * 3 * 4);
    EXPECT_EQ(measures.non_diffeomorphic_voxels, 0);
    EXPECT_EQ(measures.non_diffeomorphic_tetrahedra, 0);
    EXPECT_EQ(measures.non_diffeomorphic_volume, 0);
  }
}

TEST(MeasureDiffeomorphismTest, AMirroredVolumeIsTurnedInsideOutAsAWhole) {
  // x + u(x) = -x along the last axis: every determinant changes its sign, and
  // the tetrahedra of a cube fill it.
  at::Tensor field = at::zeros({1, 3, 4, 5, 6});
  field.select(1, 2).sub_(2 * at::arange(6));
  const DiffeomorphismMeasures measures = MeasureDiffeomorphism(field);
  EXPECT_EQ(measures.non_diffeomorphic_voxels, 24);
  EXPECT_EQ(measures.non_diffeomorphic_tetrahedra, 24);
  EXPECT_NEAR(measures.non_diffeomorphic_volume, 24, 1e-12);
}

TEST(MeasureDiffeomorphismTest, CentralDifferencesMissWhatTetrahedraSee) {
  // A checkerboard along one axis: differences of neighbours are +-3, those
  // over two voxels 0.
  at::Tensor field = at::zeros({1, 3, 4, 4, 8});
  field.select(1, 2).add_(at::arange(8).remainder(2) * 3);
  const DiffeomorphismMeasures measures = MeasureDiffeomorphism(field);
  EXPECT_EQ(measures.non_diffeomorphic_voxels, 0);
  EXPECT_GT(measures.non_diffeomorphic_tetrahedra, 0);
  EXPECT_GT(measures.non_diffeomorphic_volume, 0);
}

TEST(MeasureDiffeomorphismTest, CountsWithinTheMask) {
  const at::Tensor field = RandomField(4);
  at::Tensor mask = at::zeros({2, 6, 7, 5});
  mask.narrow(1, 2, 2).fill_(0.5);
  const DiffeomorphismMeasures measures = MeasureDiffeomorphism(field, mask);
  const at::Tensor inner = Inside(mask) > 0;
  EXPECT_EQ(measures.voxels, inner.sum().item<int64_t>());
  const at::Tensor folded =
      StencilJacobian(field, JacobianStencil::kCentral) <= 0;
  EXPECT_EQ(measures.non_diffeomorphic_voxels,
            (folded & inner).sum().item<int64_t>());
  EXPECT_GT(measures.non_diffeomorphic_voxels, 0);
  EXPECT_NEAR(measures.non_diffeomorphic_volume,
              (NonDiffeomorphicVolume(field) * inner).sum().item<double>(),
              1e-12);
  EXPECT_EQ(MeasureDiffeomorphism(field, at::ones_like(mask)).voxels,
            MeasureDiffeomorphism(field).voxels);
}

TEST(MeasureDiffeomorphismTest, SaysWhatItWanted) {
  const auto measure = [](const at::Tensor& field) {
    return [=] { MeasureDiffeomorphism(field); };
  };
  const at::Tensor good = at::zeros({1, 3, 3, 3, 3});
  EXPECT_THAT(measure({}),
              ThrowsMessage<c10::ValueError>(HasSubstr("undefined")));
  for (const at::Tensor& bad :
       {good.narrow(1, 0, 2), good.narrow(3, 0, 2), good.narrow(0, 0, 0),
        good.to(at::kInt), at::zeros({1, 2, 8, 8})}) {
    EXPECT_THAT(measure(bad),
                ThrowsMessage<c10::ValueError>(HasSubstr("wanted")));
  }
  at::Tensor infinite = good.clone();
  infinite[0][1][2][2][2] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(measure(infinite), ThrowsMessage<c10::ValueError>(HasSubstr(
                                     "displacement[0, 1, 2, 2, 2] is inf")));
  const auto masked = [&](const at::Tensor& mask) {
    return [=] { MeasureDiffeomorphism(good, mask); };
  };
  EXPECT_THAT(masked({}),
              ThrowsMessage<c10::ValueError>(HasSubstr("mask is undefined")));
  EXPECT_THAT(masked(at::zeros({1, 3, 3, 4})),
              ThrowsMessage<c10::ValueError>(HasSubstr("wanted a mask")));
}

}  // namespace
}  // namespace mir::metrics
