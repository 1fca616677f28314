#include "mir/metrics/surface_distance.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace mir::metrics {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsNan;
using ::testing::ThrowsMessage;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A box of `label` from `first` on, of `size` voxels.
void Fill(at::Tensor volume, std::vector<int64_t> first,
          std::vector<int64_t> size, int64_t label) {
  for (int64_t axis = 0; axis < volume.dim(); ++axis) {
    volume = volume.narrow(axis, first[axis], size[axis]);
  }
  volume.fill_(label);
}

TEST(CompareSurfacesTest, EqualSegmentationsAreNotApart) {
  at::Tensor a = at::zeros({6, 7, 8}, at::kByte);
  Fill(a, {1, 1, 1}, {3, 4, 5}, 4);
  const SurfaceDistances same = CompareSurfaces(a, a, {1., 2., 3.});
  EXPECT_THAT(same.labels, ElementsAre(4));
  EXPECT_THAT(same.hd95_mm, ElementsAre(0));
  EXPECT_THAT(same.average_mm, ElementsAre(0));
  EXPECT_EQ(same.scored, 1);
}

TEST(CompareSurfacesTest, AShiftedPlateIsAsFarAsTheShiftInMillimetres) {
  // One voxel thick: every voxel is surface, and 2 voxels of 1.5 mm away.
  at::Tensor a = at::zeros({9, 5, 5}, at::kInt);
  at::Tensor b = at::zeros({9, 5, 5}, at::kLong);
  Fill(a, {2, 0, 0}, {1, 5, 5}, 7);
  Fill(b, {4, 0, 0}, {1, 5, 5}, 7);
  const SurfaceDistances apart = CompareSurfaces(a, b, {1.5, 0.1, 0.1});
  EXPECT_DOUBLE_EQ(apart.mean_hd95_mm, 3);
  EXPECT_DOUBLE_EQ(apart.mean_average_mm, 3);
}

TEST(CompareSurfacesTest, TakesTheLargerDirectionAndAllDistancesForTheMean) {
  // On a line, voxel 0 against voxels 0 and 20: 0 one way; 0 and 20 back, whose
  // 95th percentile lies 0.95 of the way.
  at::Tensor a = at::zeros({1, 21}, at::kBool);
  at::Tensor b = at::zeros({1, 21}, at::kBool);
  a[0][0] = true;
  b[0][0] = true;
  b[0][20] = true;
  const SurfaceDistances apart = CompareSurfaces(a, b, {1., 0.5});
  EXPECT_THAT(apart.hd95_mm, ElementsAre(DoubleEq(9.5)));
  EXPECT_THAT(apart.average_mm, ElementsAre(DoubleEq(10. / 3)));
  EXPECT_EQ(CompareSurfaces(b, a, {1., 0.5}).mean_hd95_mm, apart.mean_hd95_mm);
}

TEST(CompareSurfacesTest, InnerVoxelsAreNoSurfaceButThoseAtTheVolumesFaceAre) {
  // 5 x 5 against its 16 voxels at the edge: only a's surface counts, which is
  // the same. In a volume of just that size it still is.
  at::Tensor a = at::zeros({7, 7}, at::kInt);
  Fill(a, {1, 1}, {5, 5}, 1);
  at::Tensor b = a.clone();
  Fill(b, {2, 2}, {3, 3}, 2);
  const std::vector<int64_t> one = {1};
  EXPECT_EQ(CompareSurfaces(a, b, {1., 1.}, one).mean_average_mm, 0);
  const auto inside = [](const at::Tensor& volume) {
    return volume.narrow(0, 1, 5).narrow(1, 1, 5);
  };
  EXPECT_EQ(CompareSurfaces(inside(a), inside(b), {1., 1.}, one).mean_hd95_mm,
            0);
}

TEST(CompareSurfacesTest, MissingLabelsAreInfinitelyFarAndCountedApart) {
  at::Tensor a = at::zeros({3, 3, 4}, at::kInt);
  at::Tensor b = at::zeros({3, 3, 4}, at::kInt);
  Fill(a, {0, 0, 0}, {1, 1, 1}, 1);
  Fill(b, {0, 0, 2}, {1, 1, 1}, 1);
  Fill(a, {2, 2, 2}, {1, 1, 1}, -5);
  Fill(b, {1, 1, 1}, {1, 1, 1}, 9);
  const SurfaceDistances all = CompareSurfaces(a, b, {1., 1., 1.});
  EXPECT_THAT(all.labels, ElementsAre(-5, 1, 9));
  EXPECT_THAT(all.hd95_mm, ElementsAre(kInfinity, 2, kInfinity));
  EXPECT_THAT(all.average_mm, ElementsAre(kInfinity, 2, kInfinity));
  EXPECT_EQ(all.mean_hd95_mm, 2);
  EXPECT_EQ(all.scored, 1);
  EXPECT_EQ(all.missing, 2);

  const SurfaceDistances given =
      CompareSurfaces(a, b, {1., 1., 1.}, std::vector<int64_t>{8, -5});
  EXPECT_THAT(given.hd95_mm, ElementsAre(IsNan(), kInfinity));
  EXPECT_THAT(given.mean_hd95_mm, IsNan());
  EXPECT_EQ(given.scored, 0);
  EXPECT_EQ(given.missing, 1);
  const at::Tensor nothing = at::zeros({3, 3}, at::kInt);
  EXPECT_THAT(CompareSurfaces(nothing, nothing, {1., 1.}).labels, IsEmpty());
}

TEST(CompareSurfacesTest, SaysWhatItWanted) {
  const at::Tensor good = at::zeros({2, 3, 4}, at::kInt);
  const auto compare = [](const at::Tensor& a, const at::Tensor& b,
                          std::vector<double> spacing,
                          std::vector<int64_t> labels = {}) {
    return [=] { CompareSurfaces(a, b, spacing, labels); };
  };
  EXPECT_THAT(compare({}, good, {1, 1, 1}),
              ThrowsMessage<c10::ValueError>(HasSubstr("a is undefined")));
  EXPECT_THAT(compare(good, good.to(at::kFloat), {1, 1, 1}),
              ThrowsMessage<c10::ValueError>(HasSubstr("wanted b")));
  EXPECT_THAT(compare(good[0][0], good[0][0], {1}),
              ThrowsMessage<c10::ValueError>(HasSubstr("[D, H, W]")));
  EXPECT_THAT(compare(good, good.narrow(0, 0, 1), {1, 1, 1}),
              ThrowsMessage<c10::ValueError>(HasSubstr("of one shape")));
  EXPECT_THAT(compare(good, good, {1, 1}),
              ThrowsMessage<c10::ValueError>(HasSubstr("3 positive numbers")));
  EXPECT_THAT(compare(good, good, {1, 1, 0}),
              ThrowsMessage<c10::ValueError>(HasSubstr("3 positive numbers")));
  EXPECT_THAT(compare(good, good, {1, 1, 1}, {3, 3}),
              ThrowsMessage<c10::ValueError>(HasSubstr("3 is given twice")));
}

}  // namespace
}  // namespace mir::metrics
