#include "mir/geometry/warp.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "mir/precision/autocast.h"
#include "mir/precision/precision.h"
#include "mir/testing/gradient_check.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::geometry {
namespace {

using ::mir::testing::AllClose;
using ::mir::testing::GradientError;
using ::mir::testing::TensorEq;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr WarpOptions kMir = {WarpConvention::kMirCompatible};
constexpr WarpOptions kNearest = {WarpConvention::kExact,
                                  Interpolation::kNearest};
constexpr Outside kAllOutside[] = {Outside::kZero, Outside::kNearestEdge,
                                   Outside::kReflect, Outside::kConstant};
constexpr WarpOptions kAir = {WarpConvention::kExact, Interpolation::kLinear,
                              Outside::kConstant, /*constant=*/-1024};

at::Tensor Rand(at::IntArrayRef sizes, uint64_t seed,
                at::ScalarType dtype = at::kFloat) {
  return at::rand(sizes, at::detail::createCPUGenerator(seed),
                  at::TensorOptions(dtype));
}

// A line of voxels along w as a volume, and a displacement along w alone.
at::Tensor Line(std::vector<double> values) {
  return at::tensor(values, at::kFloat).view({1, 1, 1, 1, -1});
}
at::Tensor AlongW(std::vector<double> shifts) {
  at::Tensor shift =
      at::zeros({1, 3, 1, 1, static_cast<int64_t>(shifts.size())});
  shift.select(1, 2).copy_(at::tensor(shifts, at::kFloat).view({1, 1, 1, -1}));
  return shift;
}
at::Tensor WarpLine(std::vector<double> values, std::vector<double> shifts,
                    const WarpOptions& options = {}) {
  return Warp(Line(values), AlongW(shifts), options).flatten();
}
at::Tensor Values(std::vector<double> values) {
  return at::tensor(values, at::kFloat);
}

struct DtypeCase {
  const char* name;
  at::ScalarType dtype;
  double epsilon;  // The dtype's spacing at 1.
};

class WarpDtypeTest : public ::testing::TestWithParam<DtypeCase> {};

TEST_P(WarpDtypeTest, ZeroDisplacementReturnsEveryBit) {
  const auto& [name, dtype, epsilon] = GetParam();
  const at::ScalarType bits = at::elementSize(dtype) == 8   ? at::kLong
                              : at::elementSize(dtype) == 4 ? at::kInt
                                                            : at::kShort;
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{2, 2, 7, 10, 13},
                                         {1, 1, 1, 96, 160},
                                         {2, 3, 17, 5},
                                         {1, 1, 1, 1}}) {
    at::Tensor image = ((Rand(sizes, 1) - 0.5) * 1000).to(dtype);
    image.flatten()[0] = -0.0;
    std::vector<int64_t> field_sizes = sizes;
    field_sizes[1] = sizes.size() - 2;
    for (const Outside outside : kAllOutside) {
      for (const Interpolation interpolation :
           {Interpolation::kLinear, Interpolation::kNearest}) {
        const at::Tensor warped =
            Warp(image, at::zeros(field_sizes),
                 {WarpConvention::kExact, interpolation, outside});
        EXPECT_EQ(warped.scalar_type(), dtype);
        EXPECT_TRUE(at::equal(warped.view(bits), image.view(bits)));
      }
    }
  }
}

TEST_P(WarpDtypeTest, HalfVoxelShiftAveragesNeighbours) {
  const auto& [name, dtype, epsilon] = GetParam();

  const at::Tensor warped = Warp(
      Line({1, 2, 4, 8}).to(dtype), AlongW({.5, .5, .5, .5}),
      {WarpConvention::kExact, Interpolation::kLinear, Outside::kNearestEdge});

  EXPECT_EQ(warped.scalar_type(), dtype);
  EXPECT_THAT(warped.flatten(), AllClose(Values({1.5, 3, 6, 8}), 4 * epsilon));
}

TEST_P(WarpDtypeTest, DisplacementMayHaveAnotherDtype) {
  const auto& [name, dtype, epsilon] = GetParam();
  const at::Tensor image = Rand({1, 2, 4, 5, 6}, 1, at::kDouble);
  const at::Tensor shift = (Rand({1, 3, 4, 5, 6}, 2) * 3 - 1.5).to(dtype);

  for (const at::ScalarType image_dtype :
       {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    const at::Tensor source = image.to(image_dtype);
    const at::Tensor warped = Warp(source, shift);
    EXPECT_EQ(warped.scalar_type(), image_dtype);
    // Only the rounding of the image and the result is the dtype's own.
    const at::Tensor expected =
        Warp(source.to(at::kDouble), shift.to(at::kDouble)).to(image_dtype);
    EXPECT_THAT(warped,
                AllClose(expected, image_dtype == at::kHalf       ? 1e-3
                                   : image_dtype == at::kBFloat16 ? 8e-3
                                                                  : 1e-6));
  }
}

TEST_P(WarpDtypeTest, GradientsComeBackInTheInputsDtypes) {
  const auto& [name, dtype, epsilon] = GetParam();
  const at::Tensor image =
      Line({1, 2, 4, 8}).to(dtype).detach().requires_grad_();
  const at::Tensor shift = AlongW({.5, .5, .5, .5}).requires_grad_();

  Warp(image, shift).sum().backward();

  EXPECT_EQ(image.grad().scalar_type(), dtype);
  EXPECT_THAT(image.grad().flatten(),
              AllClose(Values({.5, 1, 1, 1}), 4 * epsilon));
  EXPECT_EQ(shift.grad().scalar_type(), at::kFloat);
  EXPECT_THAT(shift.grad().select(1, 2).flatten(),
              AllClose(Values({1, 2, 4, -8}), 4 * epsilon));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, WarpDtypeTest,
                         ::testing::ValuesIn(std::vector<DtypeCase>{
                             {"Float64", at::kDouble, 2.3e-16},
                             {"Float32", at::kFloat, 1.2e-7},
                             {"Float16", at::kHalf, 9.8e-4},
                             {"BFloat16", at::kBFloat16, 7.9e-3},
                         }),
                         [](const auto& info) { return info.param.name; });

TEST(WarpTest, ZeroDisplacementOfFourByFourIsTheIdentity) {
  const at::Tensor image = at::arange(16, at::kFloat).view({1, 1, 4, 4});
  EXPECT_THAT(Warp(image, at::zeros({1, 2, 4, 4})), TensorEq(image));
}

TEST(WarpTest, ShiftByWholeVoxels) {
  EXPECT_THAT(WarpLine({1, 2, 4, 8}, {2, 2, 2, 2}),
              TensorEq(Values({4, 8, 0, 0})));
  EXPECT_THAT(WarpLine({1, 2, 4, 8}, {-1, -1, -1, -1}),
              TensorEq(Values({0, 1, 2, 4})));
}

TEST(WarpTest, ZeroOutsideFadesOverTheLastVoxel) {
  EXPECT_THAT(WarpLine({2, 4}, {-0.25, 0.25}), TensorEq(Values({1.5, 3})));
  EXPECT_THAT(WarpLine({2, 4}, {-1e30, 1e30}), TensorEq(Values({0, 0})));
}

TEST(WarpTest, NearestEdgeOutsideRepeatsIt) {
  const WarpOptions edge = {WarpConvention::kExact, Interpolation::kLinear,
                            Outside::kNearestEdge};
  EXPECT_THAT(WarpLine({2, 4}, {-0.25, 1e30}, edge), TensorEq(Values({2, 4})));
}

TEST(WarpTest, ReflectMirrorsAboutTheOutermostCentres) {
  const WarpOptions reflect = {WarpConvention::kExact, Interpolation::kLinear,
                               Outside::kReflect};
  // Read at -1, 3.5, 7 and 3 + 1e30; 7 is two mirrorings away from 1.
  EXPECT_THAT(WarpLine({1, 2, 4, 8}, {-1, 2.5, 5, 0}, reflect),
              TensorEq(Values({2, 6, 2, 8})));
  const at::Tensor far =
      WarpLine({1, 2, 4, 8}, {1e30, -1e30, 3e38, -3e38}, reflect);
  EXPECT_TRUE(((far >= 1) & (far <= 8)).all().item<bool>());
}

TEST(WarpTest, ConstantOutsideFadesOverTheLastVoxel) {
  EXPECT_THAT(WarpLine({0, 256}, {-2, 1}, kAir),
              TensorEq(Values({-1024, -1024})));
  EXPECT_THAT(WarpLine({0, 256}, {-.5, .25}, kAir),
              TensorEq(Values({-512, -64})));
  // A volume of the constant stays it, wherever it is read.
  const at::Tensor air = at::full({1, 2, 5, 6, 7}, -1024.);
  EXPECT_THAT(Warp(air, 6 * Rand({1, 3, 5, 6, 7}, 1) - 3, kAir), TensorEq(air));
}

TEST(WarpTest, ConstantOutsideKeepsEveryBitInside) {
  const at::Tensor image = Rand({1, 1, 9, 20, 33}, 1);
  EXPECT_THAT(Warp(image, at::zeros({1, 3, 9, 20, 33}), kAir), TensorEq(image));
}

TEST(WarpTest, NeighboursWithoutWeightDoNotCount) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_THAT(WarpLine({1, infinity, 2, 3}, {0, 0, 0, -1}),
              TensorEq(Values({1, infinity, 2, 2})));
}

TEST(WarpTest, MirCompatibleReadsWhereMirDoes) {
  // Of 3 voxels, v is read at v * 3 / 2 - 0.5: at -0.5, 1 and 2.5.
  EXPECT_THAT(WarpLine({2, 4, 8}, {0, 0, 0}, kMir),
              AllClose(Values({1, 4, 4}), 4 * 1.2e-7));
  WarpOptions options = kMir;
  options.outside = Outside::kNearestEdge;
  EXPECT_THAT(WarpLine({2, 4, 8}, {0, 0, 0}, options),
              AllClose(Values({2, 4, 8}), 4 * 1.2e-7));
  // Displaced by 1 and by -3: at 1, 2.5, and -2 or, mirrored about the face
  // at -0.5, 1.
  options.outside = Outside::kReflect;
  EXPECT_THAT(WarpLine({2, 4, 8}, {1, 1, -3}, options),
              AllClose(Values({4, 8, 4}), 4 * 1.2e-7));
}

TEST(WarpTest, AxisOfOneVoxelIsReadAtItsDisplacementByBothConventions) {
  for (const WarpOptions& options : {WarpOptions(), kMir}) {
    EXPECT_THAT(WarpLine({8}, {0}, options), TensorEq(Values({8})));
    EXPECT_THAT(WarpLine({8}, {0.25}, options), TensorEq(Values({6})));
    EXPECT_THAT(WarpLine({8}, {-1.5}, options), TensorEq(Values({0})));
    for (const Outside outside : {Outside::kNearestEdge, Outside::kReflect}) {
      WarpOptions inside = options;
      inside.outside = outside;
      EXPECT_THAT(WarpLine({8}, {-1.5}, inside), TensorEq(Values({8})));
    }
  }
}

TEST(WarpTest, NearestTakesTheEvenVoxelHalfway) {
  EXPECT_THAT(WarpLine({1, 2, 3, 4}, {.5, .5, .5, .5}, kNearest),
              TensorEq(Values({1, 3, 3, 0})));
  EXPECT_THAT(WarpLine({1, 2, 3}, {-.5, -.5, .5}, kNearest),
              TensorEq(Values({1, 1, 3})));
  EXPECT_THAT(WarpLine({1, 2, 3}, {-.75, -.25, .75}, kNearest),
              TensorEq(Values({0, 2, 0})));
}

TEST(WarpTest, HugeDisplacementsStayInTheImagesRange) {
  for (const WarpConvention convention :
       {WarpConvention::kExact, WarpConvention::kMirCompatible}) {
    for (const Interpolation interpolation :
         {Interpolation::kLinear, Interpolation::kNearest}) {
      for (const Outside outside : kAllOutside) {
        const at::Tensor image = Line({1, 2, 4, 8}).requires_grad_();
        const at::Tensor shift =
            AlongW({3.4e38, -3.4e38, 1e20, -1e20}).requires_grad_();
        const at::Tensor warped =
            Warp(image, shift, {convention, interpolation, outside});
        const double least =
            outside == Outside::kZero || outside == Outside::kConstant ? 0 : 1;
        EXPECT_TRUE(((warped >= least) & (warped <= 8)).all().item<bool>());
        warped.sum().backward();
        EXPECT_TRUE(at::isfinite(image.grad()).all().item<bool>());
        EXPECT_TRUE(at::isfinite(shift.grad()).all().item<bool>());
      }
    }
  }
}

TEST(WarpTest, ChannelOfTheDisplacementIsTheSpatialAxis) {
  const at::Tensor image = at::arange(24, at::kFloat).view({1, 1, 2, 3, 4});
  for (int64_t axis = 0; axis < 3; ++axis) {
    at::Tensor shift = at::zeros({1, 3, 2, 3, 4});
    shift.select(1, axis).fill_(1);
    at::Tensor expected = at::zeros_like(image);
    const int64_t size = image.size(2 + axis);
    expected.narrow(2 + axis, 0, size - 1)
        .copy_(image.narrow(2 + axis, 1, size - 1));
    EXPECT_THAT(Warp(image, shift), TensorEq(expected));
  }
}

TEST(WarpTest, BatchAndChannelsAreIndependent) {
  const at::Tensor image = Rand({3, 4, 5, 6, 7}, 1);
  const at::Tensor shift = 4 * Rand({3, 3, 5, 6, 7}, 2) - 2;
  const at::Tensor warped = Warp(image, shift);
  for (int64_t n = 0; n < 3; ++n) {
    for (int64_t c = 0; c < 4; ++c) {
      EXPECT_THAT(warped.narrow(0, n, 1).narrow(1, c, 1),
                  TensorEq(Warp(image.narrow(0, n, 1).narrow(1, c, 1),
                                shift.narrow(0, n, 1))));
    }
  }
}

TEST(WarpTest, StridesDoNotMatter) {
  const at::Tensor image = Rand({2, 3, 4, 5, 6}, 1);
  const at::Tensor shift = 4 * Rand({2, 3, 4, 5, 6}, 2) - 2;
  EXPECT_THAT(Warp(image.contiguous(at::MemoryFormat::ChannelsLast3d),
                   shift.transpose(2, 4).contiguous().transpose(2, 4)),
              TensorEq(Warp(image, shift)));
}

TEST(WarpTest, StridesOfTheGradientDoNotMatter) {
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{2, 3, 4, 5, 6}, {2, 2, 5, 6}}) {
    const auto gradients = [&](const at::Tensor& cotangent) {
      const at::Tensor image = Rand(sizes, 1).requires_grad_();
      const at::Tensor shift = (4 * Rand(sizes, 2) - 2).requires_grad_();
      Warp(image, shift).backward(cotangent);
      return at::cat({image.grad(), shift.grad()});
    };
    const at::Tensor cotangent = Rand(sizes, 3);
    EXPECT_THAT(
        gradients(cotangent.transpose(1, -1).contiguous().transpose(1, -1)),
        TensorEq(gradients(cotangent)));
    const at::Tensor number = Rand({1}, 4);
    EXPECT_THAT(gradients(number.expand(sizes)),
                TensorEq(gradients(number.expand(sizes).contiguous())));
  }
}

TEST(WarpTest, IdentityKeepsSixteenBitImagesAtAnySize) {
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    const at::Tensor image = Rand({1, 1, 300, 7, 257}, 1).to(dtype);
    EXPECT_THAT(Warp(image, at::zeros({1, 3, 300, 7, 257}).to(dtype)),
                TensorEq(image));
  }
}

TEST(WarpTest, AutocastChangesNothing) {
  const at::Tensor image = Rand({1, 1, 6, 7, 200}, 1);
  const at::Tensor shift = 4 * Rand({1, 3, 6, 7, 200}, 2) - 2;
  const at::Tensor expected = Warp(image, shift);
  const precision::Autocast autocast(at::kCPU, precision::Precision::kBFloat16);
  EXPECT_THAT(Warp(image, shift), TensorEq(expected));
}

using GradientCase = std::tuple<int, WarpConvention, Outside>;
class WarpGradientTest : public ::testing::TestWithParam<GradientCase> {};

TEST_P(WarpGradientTest, IsTheDerivative) {
  const auto [dims, convention, outside] = GetParam();
  const WarpOptions options = {convention, Interpolation::kLinear, outside,
                               /*constant=*/0.75};
  const bool volume = dims == 3;
  const at::Tensor image = volume ? Rand({2, 2, 3, 4, 5}, 1, at::kDouble)
                                  : Rand({2, 2, 4, 5}, 1, at::kDouble);
  const at::Tensor shift = volume ? Rand({2, 3, 3, 4, 5}, 2, at::kDouble)
                                  : Rand({2, 2, 4, 5}, 2, at::kDouble);
  EXPECT_LT(GradientError(
                [&](const std::vector<at::Tensor>& in) {
                  return Warp(in[0], in[1], options);
                },
                {image, 6 * shift - 3}),
            1e-7);
}

std::string GradientCaseName(
    const ::testing::TestParamInfo<GradientCase>& info) {
  const auto [dims, convention, outside] = info.param;
  return std::to_string(dims) + "D" +
         (convention == WarpConvention::kExact ? "Exact" : "Mir") +
         (outside == Outside::kZero          ? "Zero"
          : outside == Outside::kNearestEdge ? "Edge"
          : outside == Outside::kReflect     ? "Reflect"
                                             : "Constant");
}

INSTANTIATE_TEST_SUITE_P(
    All, WarpGradientTest,
    ::testing::Combine(::testing::Values(2, 3),
                       ::testing::Values(WarpConvention::kExact,
                                         WarpConvention::kMirCompatible),
                       ::testing::ValuesIn(kAllOutside)),
    GradientCaseName);

TEST(WarpTest, NearestHasNoGradientToTheDisplacement) {
  const at::Tensor image = Line({1, 2, 4, 8}).requires_grad_();
  const at::Tensor shift = AlongW({1, 1, 1, 1}).requires_grad_();
  Warp(image, shift, kNearest).sum().backward();
  EXPECT_THAT(image.grad().flatten(), TensorEq(Values({0, 1, 1, 1})));
  EXPECT_THAT(shift.grad(), TensorEq(at::zeros_like(shift)));
}

TEST(WarpTest, NearestEdgeHasNoGradientToTheDisplacementAtTheEdge) {
  const at::Tensor shift = AlongW({0, 0, 0, 0}).requires_grad_();
  Warp(Line({1, 2, 4, 8}), shift,
       {WarpConvention::kExact, Interpolation::kLinear, Outside::kNearestEdge})
      .sum()
      .backward();
  EXPECT_THAT(shift.grad().select(1, 2).flatten(),
              TensorEq(Values({0, 2, 4, 0})));
}

TEST(WarpTest, ThreadsDoNotChangeABit) {
  const int threads = at::get_num_threads();
  // Small displacements, such that slabs of the image are worked on in
  // parallel, and ones that reach all of it.
  for (const double reach : {1.5, 6.0, 100.0}) {
    std::vector<at::Tensor> warped, image_gradients, shift_gradients;
    for (const int number : {1, 3}) {
      at::set_num_threads(number);
      const at::Tensor image = Rand({2, 3, 40, 30, 20}, 1).requires_grad_();
      const at::Tensor shift =
          (reach * (2 * Rand({2, 3, 40, 30, 20}, 2) - 1)).requires_grad_();
      warped.push_back(Warp(image, shift));
      (warped.back() * Rand(image.sizes(), 3)).sum().backward();
      image_gradients.push_back(image.grad());
      shift_gradients.push_back(shift.grad());
    }
    EXPECT_THAT(warped[1], TensorEq(warped[0]));
    EXPECT_THAT(image_gradients[1], TensorEq(image_gradients[0]));
    EXPECT_THAT(shift_gradients[1], TensorEq(shift_gradients[0]));
  }
  at::set_num_threads(threads);
}

TEST(WarpTest, EmptyBatchIsEmpty) {
  const at::Tensor image = at::zeros({0, 1, 4, 5, 6}).requires_grad_();
  const at::Tensor shift = at::zeros({0, 3, 4, 5, 6}).requires_grad_();
  const at::Tensor warped = Warp(image, shift);
  EXPECT_EQ(warped.sizes(), image.sizes());
  warped.sum().backward();
  EXPECT_EQ(shift.grad().sizes(), shift.sizes());
  EXPECT_EQ(Warp(at::zeros({2, 0, 5, 6}), at::zeros({2, 2, 5, 6})).sizes(),
            at::IntArrayRef({2, 0, 5, 6}));
  EXPECT_EQ(
      WarpLabels(at::zeros({0, 1, 5, 6}, at::kInt), at::zeros({0, 2, 5, 6}))
          .sizes(),
      at::IntArrayRef({0, 1, 5, 6}));
}

TEST(WarpTest, NamesTheFirstDisplacementThatIsNotFinite) {
  at::Tensor shift = at::zeros({2, 3, 4, 5, 6});
  shift[1][0][3][2][1] = std::numeric_limits<float>::infinity();
  shift[1][2][1][0][3] = std::numeric_limits<float>::quiet_NaN();
  const auto warp = [&] { Warp(at::zeros({2, 1, 4, 5, 6}), shift); };
  EXPECT_THAT(warp, ThrowsMessage<c10::ValueError>(
                        AllOf(HasSubstr("displacement[1, 2, 1, 0, 3] is nan"),
                              HasSubstr("wanted finite"))));
  at::Tensor shift_2d = at::zeros({1, 2, 5, 6});
  shift_2d[0][1][4][5] = -std::numeric_limits<float>::infinity();
  const auto labels = [&] {
    WarpLabels(at::zeros({1, 1, 5, 6}, at::kInt), shift_2d);
  };
  EXPECT_THAT(labels, ThrowsMessage<c10::ValueError>(
                          HasSubstr("displacement[0, 1, 4, 5] is -inf")));
}

TEST(WarpTest, RefusesASecondDerivative) {
  const at::Tensor image = Line({1, 2, 4, 8}).requires_grad_();
  const at::Tensor sum = Warp(image, AlongW({.5, .5, .5, .5})).sum();
  EXPECT_THAT(
      [&] { sum.backward({}, /*retain_graph=*/true, /*create_graph=*/true); },
      ThrowsMessage<c10::NotImplementedError>(
          HasSubstr("no second derivative")));
}

TEST(WarpTest, SaysWhatWasWantedAndWhatCame) {
  const at::Tensor image = at::zeros({1, 1, 4, 5, 6});
  const at::Tensor shift = at::zeros({1, 3, 4, 5, 6});
  const struct {
    at::Tensor image, displacement;
    const char* message;
  } cases[] = {
      {at::Tensor(), shift, "image is undefined"},
      {image, at::Tensor(), "displacement is undefined"},
      {at::zeros({4, 5, 6}), shift,
       "wanted image [N, C, D, H, W] or [N, C, H, W], came [4, 5, 6]"},
      {at::zeros({1, 1, 0, 5, 6}), at::zeros({1, 3, 0, 5, 6}),
       "wanted image with voxels, came [1, 1, 0, 5, 6]"},
      {image, at::zeros({1, 2, 4, 5, 6}),
       "wanted displacement [1, 3, 4, 5, 6] for image [1, 1, 4, 5, 6], came "
       "[1, 2, 4, 5, 6]"},
      {image, at::zeros({2, 3, 4, 5, 6}), "came [2, 3, 4, 5, 6]"},
      {image, at::zeros({1, 3, 4, 5, 7}), "came [1, 3, 4, 5, 7]"},
      {at::zeros({1, 1, 4, 5}), at::zeros({1, 3, 4, 5}),
       "wanted displacement [1, 2, 4, 5]"},
      {image, shift.to(at::kInt), "displacement, came Int"},
      {image.to(at::kInt), shift,
       "image, came Int; for labels call WarpLabels"},
      {image.to(at::kMeta), shift, "on one device, came meta and cpu"},
      {at::zeros({1}).expand({1, 1, 2048, 1024, 1024}),
       at::zeros({1}).expand({1, 3, 2048, 1024, 1024}),
       "wanted image with fewer than 2^31 voxels per channel, came "
       "[1, 1, 2048, 1024, 1024]"},
  };
  for (const auto& bad : cases) {
    EXPECT_THAT([&] { Warp(bad.image, bad.displacement); },
                ThrowsMessage<c10::ValueError>(HasSubstr(bad.message)));
  }
  EXPECT_THAT([&] { WarpLabels(image, shift); },
              ThrowsMessage<c10::ValueError>(
                  HasSubstr("wanted labels of an integer dtype, came Float")));
  EXPECT_THAT(
      [&] {
        WarpLabels(image.to(at::kInt), at::zeros({1, 3, 1, 1, 1}));
      },
      ThrowsMessage<c10::ValueError>(HasSubstr("WarpLabels: wanted ")));
}

class WarpLabelsDtypeTest : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(WarpLabelsDtypeTest, OnlyTheInputsLabelsComeOut) {
  const at::ScalarType dtype = GetParam();
  const at::Tensor labels =
      (at::randint(0, 3, {1, 1, 9, 9, 9}, at::detail::createCPUGenerator(1)) *
       10)
          .to(dtype);
  const at::Tensor shift = 6 * Rand({1, 3, 9, 9, 9}, 2) - 3;
  const at::Tensor warped = WarpLabels(labels, shift);
  EXPECT_EQ(warped.scalar_type(), dtype);
  EXPECT_TRUE(
      ((warped == 0) | (warped == 10) | (warped == 20)).all().item<bool>());
  EXPECT_THAT(
      warped.to(at::kDouble),
      TensorEq(Warp(labels.to(at::kFloat), shift, kNearest).to(at::kDouble)));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, WarpLabelsDtypeTest,
                         ::testing::Values(at::kByte, at::kChar, at::kShort,
                                           at::kInt, at::kLong),
                         [](const auto& info) {
                           return std::string(c10::toString(info.param));
                         });

TEST(WarpLabelsTest, KeepsWhatNoFloatHolds) {
  const int64_t large = (int64_t{1} << 62) + 1;
  const at::Tensor labels = at::full({1, 1, 2, 3}, large, at::kLong);
  EXPECT_TRUE(at::equal(WarpLabels(labels, at::zeros({1, 2, 2, 3})), labels));
  const at::Tensor mask = at::ones({1, 1, 2, 3}, at::kBool);
  EXPECT_THAT(WarpLabels(mask, at::zeros({1, 2, 2, 3}).to(at::kHalf)),
              TensorEq(mask));
}

TEST(WarpLabelsTest, MirCompatibleMagnifies) {
  // Of 3 voxels, v is read at v * 3 / 2 - 0.5: at -0.5, 1 and 2.5, and halfway
  // the even voxel.
  const at::Tensor labels =
      at::tensor({5, 6, 7}, at::kInt).view({1, 1, 1, 1, 3});
  EXPECT_THAT(WarpLabels(labels, at::zeros({1, 3, 1, 1, 3}),
                         WarpConvention::kMirCompatible),
              TensorEq(labels));
  EXPECT_THAT(WarpLabels(labels, AlongW({-0.01, 0, 0.01}),
                         WarpConvention::kMirCompatible)
                  .flatten(),
              TensorEq(at::tensor({0, 6, 0}, at::kInt)));
}

class WarpLabelsLinearDtypeTest
    : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(WarpLabelsLinearDtypeTest, IsTheLargestOfTheWarpedOneHotMaps) {
  for (const WarpConvention convention :
       {WarpConvention::kExact, WarpConvention::kMirCompatible}) {
    for (const std::vector<int64_t>& sizes :
         std::vector<std::vector<int64_t>>{{2, 2, 6, 7, 8}, {2, 1, 9, 7}}) {
      const int64_t dims = static_cast<int64_t>(sizes.size()) - 2;
      const at::Tensor labels =
          at::randint(0, 4, sizes, at::detail::createCPUGenerator(1)) * 10;
      std::vector<int64_t> field_sizes = sizes;
      field_sizes[1] = dims;
      const at::Tensor shift = 6 * Rand(field_sizes, 2, at::kDouble) - 3;
      at::Tensor expected = at::zeros(sizes);
      at::Tensor most = at::zeros(sizes, at::kDouble);
      for (const int64_t label : {0, 10, 20, 30}) {
        const at::Tensor map =
            Warp((labels == label).to(at::kDouble), shift, {convention});
        expected.masked_fill_(map > most, label);
        most = at::maximum(map, most);
      }

      const at::Tensor warped =
          WarpLabelsLinear(labels.to(GetParam()), shift, convention);

      EXPECT_EQ(warped.scalar_type(), GetParam());
      EXPECT_THAT(warped.to(at::kFloat), TensorEq(expected));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, WarpLabelsLinearDtypeTest,
                         ::testing::Values(at::kByte, at::kChar, at::kShort,
                                           at::kInt, at::kLong, at::kUInt16),
                         [](const auto& info) {
                           return std::string(c10::toString(info.param));
                         });

at::Tensor WarpLabelLine(std::vector<int64_t> labels,
                         std::vector<double> shifts) {
  return WarpLabelsLinear(at::tensor(labels, at::kInt).view({1, 1, 1, 1, -1}),
                          AlongW(shifts))
      .flatten();
}

TEST(WarpLabelsLinearTest, TiesGoToTheLowestLabel) {
  EXPECT_THAT(WarpLabelLine({7, 3, -5, 9, 9}, {.5, .5, .5, 0, 0}),
              TensorEq(at::tensor({3, -5, -5, 9, 9}, at::kInt)));
}

TEST(WarpLabelsLinearTest, OutsideHasNoLabelOfItsOwn) {
  // Read a quarter and three quarters of a voxel outside, what weight there is
  // is the label's; a whole voxel outside there is none.
  EXPECT_THAT(WarpLabelLine({7, 7, 7}, {-.25, 0, .75}),
              TensorEq(at::tensor({7, 7, 7}, at::kInt)));
  EXPECT_THAT(WarpLabelLine({-7, -7, -7}, {-1, 0, 1}),
              TensorEq(at::tensor({0, -7, 0}, at::kInt)));
}

TEST(WarpLabelsLinearTest, TheMajorityWinsOverTheNearest) {
  // At (0.4, 0.4): 0.36 of label 1, and twice 0.24 and 0.16 of label 2.
  const at::Tensor labels =
      at::tensor({1, 2, 2, 2}, at::kInt).view({1, 1, 2, 2});
  const at::Tensor shift = at::full({1, 2, 2, 2}, 0.4);
  const auto first = [](const at::Tensor& warped) {
    return warped.flatten()[0].item<int>();
  };
  EXPECT_EQ(first(WarpLabels(labels, shift)), 1);
  EXPECT_EQ(first(WarpLabelsLinear(labels, shift)), 2);
}

TEST(WarpLabelsLinearTest, ZeroDisplacementKeepsWhatNoFloatHolds) {
  const int64_t large = (int64_t{1} << 62) + 1;
  const at::Tensor labels =
      at::tensor({large, large + 1, -large, int64_t{0}}, at::kLong)
          .view({1, 1, 2, 2});
  EXPECT_TRUE(
      at::equal(WarpLabelsLinear(labels, at::zeros({1, 2, 2, 2})), labels));
  const at::Tensor mask = at::tensor({1, 0, 0, 1}).view({1, 1, 2, 2}) > 0;
  EXPECT_THAT(WarpLabelsLinear(mask, at::zeros({1, 2, 2, 2}).to(at::kHalf)),
              TensorEq(mask));
}

TEST(WarpLabelsLinearTest, SaysWhatWasWantedAndWhatCame) {
  const at::Tensor shift = at::zeros({1, 2, 5, 6});
  const at::Tensor labels = at::zeros({1, 1, 5, 6}, at::kInt);
  EXPECT_THAT(
      [&] { WarpLabelsLinear(labels.to(at::kFloat), shift); },
      ThrowsMessage<c10::ValueError>(HasSubstr(
          "WarpLabelsLinear: wanted labels of an integer dtype, came Float")));
  EXPECT_THAT([&] { WarpLabelsLinear(labels, shift.narrow(1, 0, 1)); },
              ThrowsMessage<c10::ValueError>(
                  HasSubstr("WarpLabelsLinear: wanted displacement")));
  EXPECT_THAT(
      [&] {
        WarpLabelsLinear(labels,
                         shift - std::numeric_limits<float>::infinity());
      },
      ThrowsMessage<c10::ValueError>(
          HasSubstr("displacement[0, 0, 0, 0] is -inf")));
  EXPECT_EQ(
      WarpLabelsLinear(labels.narrow(0, 0, 0), shift.narrow(0, 0, 0)).numel(),
      0);
}

}  // namespace
}  // namespace mir::geometry
