#include "mir/geometry/jacobian.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/meshgrid.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>
#include <vector>

#include "mir/testing/gradient_check.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::geometry {
namespace {

using ::mir::testing::AllClose;
using ::mir::testing::GradientError;
using ::mir::testing::TensorEq;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

at::Tensor Rand(at::IntArrayRef sizes, uint64_t seed) {
  return at::rand(sizes, at::detail::createCPUGenerator(seed),
                  at::TensorOptions(at::kDouble));
}

// The displacement u(x) = matrix * x.
at::Tensor Linear(const at::Tensor& matrix, at::IntArrayRef sizes) {
  std::vector<at::Tensor> axes;
  for (const int64_t size : sizes) {
    axes.push_back(at::arange(size, at::kDouble));
  }
  const at::Tensor voxels = at::stack(at::meshgrid(axes, "ij"));
  std::vector<int64_t> field_sizes = {1, static_cast<int64_t>(sizes.size())};
  field_sizes.insert(field_sizes.end(), sizes.begin(), sizes.end());
  return matrix.mm(voxels.flatten(1)).view(field_sizes);
}

TEST(JacobianDeterminantTest, ZeroDisplacementGivesExactlyOne) {
  for (const at::ScalarType dtype :
       {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    const at::ScalarType returned =
        dtype == at::kDouble ? at::kDouble : at::kFloat;
    EXPECT_THAT(JacobianDeterminant(at::zeros({2, 3, 4, 5, 6}, dtype)),
                TensorEq(at::ones({2, 4, 5, 6}, returned)));
    EXPECT_THAT(JacobianDeterminant(at::zeros({2, 2, 5, 6}, dtype)),
                TensorEq(at::ones({2, 5, 6}, returned)));
  }
}

TEST(JacobianDeterminantTest, LinearDisplacementHasItsMatrixsDeterminant) {
  // det(I + M), by hand: 1.5 * (2 * 0.75 - 0.5 * 0.25)
  //   - 0.25 * (0 * 0.75 - 0.5 * 1) + (-1) * (0 * 0.25 - 2 * 1).
  const at::Tensor matrix =
      at::tensor({0.5, 0.25, -1.0, 0.0, 1.0, 0.5, 1.0, 0.25, -0.25},
                 at::kDouble)
          .view({3, 3});
  EXPECT_THAT(JacobianDeterminant(Linear(matrix, {4, 5, 6})),
              AllClose(at::full({1, 4, 5, 6}, 4.1875, at::kDouble), 1e-14));
  const at::Tensor matrix_2d =
      at::tensor({0.5, 0.25, -1.0, 1.0}, at::kDouble).view({2, 2});
  EXPECT_THAT(
      JacobianDeterminant(Linear(matrix_2d, {5, 6})),
      AllClose(at::full({1, 5, 6}, 1.5 * 2 + 0.25, at::kDouble), 1e-14));
}

TEST(JacobianDeterminantTest, DifferencesAreCentralInsideAndOneSidedAtFaces) {
  at::Tensor field = at::zeros({1, 2, 1, 5});
  field.select(1, 1).copy_(
      at::tensor({0., 1., 4., 9., 7.}, at::kFloat).view({1, 1, 5}));
  EXPECT_THAT(JacobianDeterminant(field).flatten(),
              TensorEq(at::tensor({2., 3., 5., 2.5, -1.}, at::kFloat)));
}

TEST(JacobianDeterminantTest, ShortAxes) {
  at::Tensor field = at::zeros({1, 2, 1, 2});
  field[0][0] = 7;
  field[0][1][0][1] = 3;
  EXPECT_THAT(JacobianDeterminant(field).flatten(),
              TensorEq(at::tensor({4., 4.}, at::kFloat)));
}

TEST(JacobianDeterminantTest, AutogradDoesNotChangeABit) {
  const at::Tensor field = Rand({2, 3, 30, 40, 50}, 1);
  EXPECT_THAT(JacobianDeterminant(field.clone().requires_grad_()),
              TensorEq(JacobianDeterminant(field)));
}

// Of a weighted sum of squares, by one of the two ways: a gradient that is to
// be differentiated goes through LibTorch's operators.
at::Tensor GradientOfSquares(const at::Tensor& field, bool create_graph) {
  const at::AutoGradMode grad(true);
  const at::Tensor leaf =
      field.requires_grad() ? field : field.clone().requires_grad_();
  const at::Tensor determinant = JacobianDeterminant(leaf);
  const at::Tensor weights =
      Rand(determinant.sizes(), 2).to(determinant.scalar_type());
  return torch::autograd::grad({(weights * determinant.pow(2)).sum()}, {leaf},
                               {}, /*retain_graph=*/std::nullopt,
                               create_graph)[0];
}

TEST(JacobianDeterminantTest, GradientIsThatOfLibTorchsOperators) {
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{2, 3, 30, 40, 50},
                                         {1, 3, 1, 2, 3},
                                         {1, 3, 4, 1, 1},
                                         {1, 3, 2, 5, 1},
                                         {2, 2, 9, 7},
                                         {1, 2, 3, 1},
                                         {1, 2, 1, 2}}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      const at::Tensor field = (4 * Rand(sizes, 1) - 2).to(dtype);
      EXPECT_THAT(GradientOfSquares(field, /*create_graph=*/false),
                  AllClose(GradientOfSquares(field, /*create_graph=*/true),
                           dtype == at::kFloat ? 2e-6 : 4e-15))
          << at::IntArrayRef(sizes);
    }
  }
}

TEST(JacobianDeterminantTest, GradientIsTheDerivative) {
  const auto determinant = [](const std::vector<at::Tensor>& in) {
    return JacobianDeterminant(in[0]);
  };
  EXPECT_LT(GradientError(determinant, {Rand({2, 3, 3, 4, 5}, 1)}), 1e-7);
  EXPECT_LT(GradientError(determinant, {Rand({2, 2, 4, 5}, 1)}), 1e-7);
  EXPECT_LT(GradientError(
                [](const std::vector<at::Tensor>& in) {
                  return GradientOfSquares(in[0], /*create_graph=*/true);
                },
                {Rand({1, 3, 3, 2, 4}, 1)}),
            1e-6);
}

TEST(JacobianDeterminantTest, StridesOfTheGradientDoNotMatter) {
  const auto gradient = [](const at::Tensor& cotangent) {
    const at::Tensor field = Rand({2, 3, 4, 5, 6}, 1).requires_grad_();
    JacobianDeterminant(field).backward(cotangent);
    return field.grad();
  };
  const at::Tensor cotangent = Rand({2, 4, 5, 6}, 2);
  EXPECT_THAT(gradient(cotangent.transpose(0, 3).contiguous().transpose(0, 3)),
              TensorEq(gradient(cotangent)));
  const at::Tensor number = Rand({1}, 3);
  EXPECT_THAT(gradient(number.expand({2, 4, 5, 6})),
              TensorEq(gradient(number.expand({2, 4, 5, 6}).contiguous())));
}

TEST(JacobianDeterminantTest, ThreadsDoNotChangeABit) {
  const int threads = at::get_num_threads();
  const at::Tensor field = 4 * Rand({2, 3, 21, 30, 20}, 1) - 2;
  std::vector<at::Tensor> gradients;
  for (const int number : {1, 3}) {
    at::set_num_threads(number);
    gradients.push_back(GradientOfSquares(field, /*create_graph=*/false));
  }
  at::set_num_threads(threads);
  EXPECT_THAT(gradients[1], TensorEq(gradients[0]));
}

TEST(JacobianDeterminantTest, EmptyBatchIsEmpty) {
  EXPECT_EQ(JacobianDeterminant(at::zeros({0, 3, 4, 5, 6})).sizes(),
            at::IntArrayRef({0, 4, 5, 6}));
}

TEST(JacobianDeterminantTest, SaysWhatWasWantedAndWhatCame) {
  EXPECT_THAT(
      [] {
        JacobianDeterminant(at::zeros({1, 4, 5, 6, 3}));
      },
      ThrowsMessage<c10::ValueError>(
          HasSubstr("JacobianDeterminant: wanted displacement [N, 3, D, H, W] "
                    "or [N, 2, H, W], came [1, 4, 5, 6, 3]")));
  EXPECT_THAT(
      [] {
        JacobianDeterminant(at::zeros({1, 2, 5, 6}, at::kInt));
      },
      ThrowsMessage<c10::ValueError>(HasSubstr("came Int")));
  EXPECT_THAT(
      [] {
        JacobianDeterminant(at::zeros({1}).expand({1, 3, 2048, 1024, 1024}));
      },
      ThrowsMessage<c10::ValueError>(HasSubstr("fewer than 2^31 voxels")));
}

}  // namespace
}  // namespace mir::geometry
