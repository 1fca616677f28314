#include "mir/geometry/match_neighbours.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "mir/geometry/vfa_sampling.h"
#include "mir/testing/gradient_check.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::geometry {
namespace {

using ::mir::testing::AllClose;
using ::mir::testing::GradientError;
using ::mir::testing::RelativeL2Near;
using ::mir::testing::TensorEq;

struct Inputs {
  at::Tensor queries, keys;
};

Inputs Random(int64_t batch, int64_t channels, std::vector<int64_t> size,
              at::ScalarType dtype = at::kFloat) {
  std::vector<int64_t> queries = {batch, channels}, keys = queries;
  for (const int64_t axis : size) {
    queries.push_back(axis);
    keys.push_back(axis + 2);
  }
  return {at::randn(queries, dtype), at::randn(keys, dtype)};
}

TEST(MatchNeighboursTest, FindsTheNeighbourThatIsLikeTheQuery) {
  const at::Tensor queries = at::zeros({1, 2, 3, 4, 5});
  const at::Tensor keys = at::zeros({1, 2, 5, 6, 7});
  // Voxel (1, 2, 3), found again one further along d and one back along w.
  queries[0][1][1][2][3] = 100;
  keys[0][1][3][3][3] = 1;
  const at::Tensor offsets = MatchNeighbours(queries, keys);
  EXPECT_NEAR(offsets[0][0][1][2][3].item<double>(), 1, 1e-6);
  EXPECT_NEAR(offsets[0][1][1][2][3].item<double>(), 0, 1e-6);
  EXPECT_NEAR(offsets[0][2][1][2][3].item<double>(), -1, 1e-6);
  // Nothing tells the other neighbours apart.
  EXPECT_NEAR(offsets[0][0][0][0][0].item<double>(), 0, 1e-6);
}

TEST(MatchNeighboursTest, IsSoftmaxAttentionOverNeighbourhoods) {
  const Inputs inputs = Random(2, 4, {3, 4, 5}, at::kDouble);
  const at::Tensor query =
      inputs.queries.permute({0, 2, 3, 4, 1}).unsqueeze(-1);
  const at::Tensor weights = at::softmax(
      at::matmul(Neighbourhoods(inputs.keys), query).squeeze(-1) / 2, -1);
  const at::Tensor expected =
      at::matmul(weights, NeighbourOffsets(3).to(at::kDouble))
          .permute({0, 4, 1, 2, 3});
  EXPECT_THAT(MatchNeighbours(inputs.queries, inputs.keys),
              AllClose(expected, 1e-14));
  EXPECT_THAT(MatchNeighboursByOperators(inputs.queries, inputs.keys),
              AllClose(expected, 1e-14));
}

TEST(MatchNeighboursTest, EqualsTheOperators) {
  // Rows longer than a tile and shorter, more planes than a slab, 2-D.
  for (const std::vector<int64_t>& size :
       {std::vector<int64_t>{11, 3, 5}, std::vector<int64_t>{1, 2, 70},
        std::vector<int64_t>{13, 6}}) {
    Inputs ours = Random(2, 3, size);
    ours.queries.requires_grad_();
    ours.keys.requires_grad_();
    const Inputs theirs = {
        ours.queries.detach().to(at::kDouble).requires_grad_(),
        ours.keys.detach().to(at::kDouble).requires_grad_()};
    const at::Tensor found = MatchNeighbours(ours.queries, ours.keys);
    const at::Tensor expected =
        MatchNeighboursByOperators(theirs.queries, theirs.keys);
    EXPECT_THAT(found, RelativeL2Near(expected, 1e-6));
    const at::Tensor cotangent = at::randn_like(found);
    found.backward(cotangent);
    expected.backward(cotangent.to(at::kDouble));
    EXPECT_THAT(ours.queries.grad(),
                RelativeL2Near(theirs.queries.grad(), 2e-6));
    EXPECT_THAT(ours.keys.grad(), RelativeL2Near(theirs.keys.grad(), 2e-6));
  }
}

TEST(MatchNeighboursTest, GradientIsTheDerivative) {
  for (const std::vector<int64_t>& size :
       {std::vector<int64_t>{5, 2, 3}, std::vector<int64_t>{3, 4}}) {
    const Inputs inputs = Random(1, 2, size, at::kDouble);
    EXPECT_LT(GradientError(
                  [](const std::vector<at::Tensor>& in) {
                    return MatchNeighbours(in[0], in[1]);
                  },
                  {inputs.queries, inputs.keys}),
              1e-7);
  }
}

TEST(MatchNeighboursTest, HasTheSameBitsForAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  std::vector<at::Tensor> results[2];
  for (const int count : {1, 2}) {
    at::set_num_threads(count);
    at::manual_seed(3);
    Inputs inputs = Random(1, 4, {17, 6, 9});
    inputs.queries.requires_grad_();
    inputs.keys.requires_grad_();
    const at::Tensor found = MatchNeighbours(inputs.queries, inputs.keys);
    found.square().sum().backward();
    results[count - 1] = {found.detach(), inputs.queries.grad(),
                          inputs.keys.grad()};
  }
  at::set_num_threads(threads);
  for (size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_THAT(results[0][i], TensorEq(results[1][i]));
  }
}

TEST(MatchNeighboursTest, StaysFiniteWhereFeaturesAreLarge) {
  const at::Tensor offsets = MatchNeighbours(at::ones({1, 1, 2, 2, 2}) * 1e4,
                                             at::randn({1, 1, 4, 4, 4}) * 1e4);
  EXPECT_TRUE(offsets.isfinite().all().item<bool>());
  EXPECT_LE(offsets.abs().max().item<double>(), 1);
}

TEST(MatchNeighboursTest, ComputesInFloat32In16Bits) {
  const Inputs inputs = Random(1, 8, {3, 4, 5}, at::kBFloat16);
  const at::Tensor found = MatchNeighbours(inputs.queries, inputs.keys);
  EXPECT_EQ(found.scalar_type(), at::kFloat);
  EXPECT_THAT(found, TensorEq(MatchNeighbours(inputs.queries.to(at::kFloat),
                                              inputs.keys.to(at::kFloat))));
}

TEST(MatchNeighboursTest, RejectsOtherShapesAndTypes) {
  const at::Tensor queries = at::zeros({1, 2, 3, 4, 5});
  const at::Tensor keys = at::zeros({1, 2, 5, 6, 7});
  for (const at::Tensor& wrong :
       {queries, at::zeros({1, 3, 5, 6, 7}), at::zeros({2, 2, 5, 6, 7}),
        at::zeros({1, 2, 5, 6}), keys.to(at::kDouble)}) {
    EXPECT_THROW(MatchNeighbours(queries, wrong), c10::ValueError);
  }
  EXPECT_THROW(MatchNeighbours(at::zeros({1, 2, 3}), at::zeros({1, 2, 5})),
               c10::ValueError);
}

}  // namespace
}  // namespace mir::geometry
