#include "mir/losses/compat/ncc.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/rand.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "mir/testing/gradient_check.h"

namespace mir::losses::compat {
namespace {

using mir::testing::GradientError;

using Loss = std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>;

at::Tensor Random(at::IntArrayRef sizes, uint64_t seed) {
  return at::rand(sizes, at::detail::createCPUGenerator(seed),
                  at::TensorOptions(at::kDouble));
}

// The sums over one window.
struct Sums {
  double n, f, m, ff, mm, fm;
};

// The negative mean of `correlation` over all windows; zeros outside.
double ByWindows(const at::Tensor& fixed, const at::Tensor& moving,
                 int64_t window,
                 const std::function<double(const Sums&)>& correlation) {
  const int64_t axes = fixed.dim() - 2;
  const std::vector<int64_t> padding(2 * axes, window / 2);
  const at::Tensor images[] = {at::constant_pad_nd(fixed, padding, 0),
                               at::constant_pad_nd(moving, padding, 0)};
  double sum = 0;
  for (int64_t i = 0; i < fixed.numel(); ++i) {
    at::Tensor windows[] = {images[0], images[1]};
    int64_t rest = i;
    for (int64_t axis = fixed.dim() - 1; axis >= 0; --axis) {
      const int64_t at = rest % fixed.size(axis);
      rest /= fixed.size(axis);
      for (at::Tensor& one : windows) {
        one = one.narrow(axis, at, axis < 2 ? 1 : window);
      }
    }
    const auto total = [](const at::Tensor& values) {
      return values.sum().item<double>();
    };
    sum += correlation({std::pow(window, axes), total(windows[0]),
                        total(windows[1]), total(windows[0].square()),
                        total(windows[1].square()),
                        total(windows[0] * windows[1])});
  }
  return -sum / fixed.numel();
}

double OfSums(const Sums& s, double n, double epsilon) {
  const double cov = s.fm - s.f * s.m / n;
  return cov * cov /
         ((s.ff - s.f * s.f / n) * (s.mm - s.m * s.m / n) + epsilon);
}

struct Means {
  explicit Means(const Sums& s)
      : cov(s.fm / s.n - s.f * s.m / s.n / s.n),
        product((s.ff / s.n - s.f * s.f / s.n / s.n) *
                (s.mm / s.n - s.m * s.m / s.n / s.n)) {}
  double cov, product;
};

struct Case {
  const char* name;
  Loss loss;
  std::vector<int64_t> sizes;
  int64_t window;
  std::function<double(const Sums&)> correlation;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class NccTest : public ::testing::TestWithParam<Case> {};

TEST_P(NccTest, EqualsMirsFormulaWindowByWindow) {
  const Case& one = GetParam();
  const at::Tensor fixed = Random(one.sizes, 1);
  const at::Tensor moving = 0.5 * fixed + 0.3 * Random(one.sizes, 2);
  const double expected = ByWindows(fixed, moving, one.window, one.correlation);
  EXPECT_NEAR(one.loss(fixed, moving).item<double>(), expected,
              1e-12 * std::abs(expected));
}

TEST_P(NccTest, GradientsEqualDifferences) {
  const Case& one = GetParam();
  const at::Tensor fixed = Random(one.sizes, 1);
  const at::Tensor moving = 0.5 * fixed + 0.3 * Random(one.sizes, 2);
  EXPECT_LT(
      GradientError([&](const auto& in) { return one.loss(in[0], in[1]); },
                    {fixed, moving}),
      1e-6);
}

TEST_P(NccTest, WideIntensitiesInFloat16StayFinite) {
  const Case& one = GetParam();
  const at::Tensor fixed = (255 * Random(one.sizes, 1)).to(at::kHalf);
  const at::Tensor moving =
      (255 * Random(one.sizes, 2)).to(at::kHalf).requires_grad_();
  const at::Tensor value = one.loss(fixed, moving);
  value.backward();
  EXPECT_TRUE(std::isfinite(value.item<double>()));
  EXPECT_TRUE(at::isfinite(moving.grad()).all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(
    Cases, NccTest,
    ::testing::ValuesIn(std::vector<Case>{
        {"Vxm",
         NccVxm(std::vector<int64_t>{3, 3, 3}),
         {2, 1, 5, 4, 6},
         3,
         [](const Sums& s) { return OfSums(s, s.n, 1e-5); }},
        {"VxmDefaultIn2D",
         NccVxm(),
         {1, 1, 11, 10},
         9,
         [](const Sums& s) { return OfSums(s, s.n, 1e-5); }},
        {"MokChannels",
         NccMok(5, 1e-3),
         {1, 2, 5, 4, 6},
         5,
         [](const Sums& s) { return OfSums(s, s.n, 1e-3); }},
        {"Ncc",
         Ncc(3),
         {1, 1, 5, 4, 6},
         3,
         [](const Sums& s) {
           const Means m(s);
           return m.cov * m.cov / (m.product + 1e-5);
         }},
        {"Fp16Squared",
         NccFp16(5, true, 1e-4),
         {1, 1, 9, 8},
         5,
         [](const Sums& s) {
           const Means m(s);
           return m.cov * m.cov / (m.product + 1e-4);
         }},
        {"Fp16Plain",
         NccFp16(5, false),
         {1, 2, 9, 8},
         5,
         [](const Sums& s) {
           const Means m(s);
           return m.cov / std::sqrt(m.product + 1e-5);
         }},
        {"Fast",
         FastNcc(5),
         {1, 1, 5, 4, 6},
         5,
         [](const Sums& s) { return OfSums(s, 5, 1e-5); }},
        {"Vfa",
         NccVfa(),
         {1, 1, 11, 10},
         9,
         [](const Sums& s) {
           const Means m(s);
           return m.cov * m.cov / std::max(m.product, 0x1p-23);
         }},
    }),
    [](const auto& info) { return std::string(info.param.name); });

TEST(NccVxmTest, ConstantImagesCorrelateAtTheBorderAsInMir) {
  // The border's zeros look like structure: why LocalNcc clips its windows.
  const at::Tensor flat = at::full({1, 1, 24, 24, 24}, 0.5);
  const double value = NccVxm()(flat, flat).item<double>();
  EXPECT_GT(value, -0.71);
  EXPECT_LT(value, -0.67);
}

TEST(NccVxmTest, SmallContrastOnALargeOffsetStaysACorrelation) {
  // Sums in float32 give -3.5e4 here.
  const at::Tensor fixed =
      (200 + 0.01 * Random({1, 1, 24, 24, 24}, 1)).to(at::kFloat);
  const at::Tensor moving =
      (200 + 0.01 * Random({1, 1, 24, 24, 24}, 2)).to(at::kFloat);
  for (const Loss& loss :
       std::vector<Loss>{NccVxm(), NccMok(), Ncc(), NccFp16(), NccVfa()}) {
    const double value = loss(fixed, moving).item<double>();
    EXPECT_GE(value, -1);
    EXPECT_LE(value, 0);
  }
}

// Every `step`th voxel along each axis.
at::Tensor Every(int64_t step, at::Tensor image) {
  for (int64_t axis = 2; axis < image.dim(); ++axis) {
    image = image.slice(axis, 0, image.size(axis), step);
  }
  return image;
}

TEST(NccVfaTest, AveragesTheScales) {
  const at::Tensor fixed = Random({1, 1, 8, 9, 7}, 1);
  const at::Tensor moving = fixed + Random({1, 1, 8, 9, 7}, 2);
  NccVfaOptions options;
  options.window = 5;
  options.scales = 2;
  options.kernel = 1;  // The pooling then picks every second voxel.
  NccVfaOptions fine, coarse;
  fine.window = 5;
  coarse.window = 3;
  EXPECT_NEAR(NccVfa(options)(fixed, moving).item<double>(),
              (NccVfa(fine)(fixed, moving) +
               NccVfa(coarse)(Every(2, fixed), Every(2, moving)))
                      .item<double>() /
                  2,
              1e-13);
  options.kernel = 3;
  EXPECT_LT(GradientError(
                [&](const auto& in) { return NccVfa(options)(in[0], in[1]); },
                {fixed, moving}),
            1e-6);
}

TEST(NccVfaTest, HalfResolutionHalvesTheImages) {
  NccVfaOptions options;
  options.window = 3;
  NccVfaOptions halved = options;
  halved.half_resolution = true;
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{1, 1, 7, 7, 7}, {1, 1, 7, 7}}) {
    const at::Tensor fixed = Random(sizes, 1);
    const at::Tensor moving = Random(sizes, 2);
    // Corner to corner, 3 of 7 voxels are every third.
    EXPECT_NEAR(
        NccVfa(halved)(fixed, moving).item<double>(),
        NccVfa(options)(Every(3, fixed), Every(3, moving)).item<double>(),
        1e-13);
    EXPECT_THROW(NccVfa{halved}(fixed.narrow(2, 0, 1), moving.narrow(2, 0, 1)),
                 c10::ValueError);
  }
}

TEST(NccErrorsTest, WrongOptionsAreRefused) {
  EXPECT_THROW(NccVxm(std::vector<int64_t>{9}), c10::ValueError);
  EXPECT_THROW(NccVxm(std::vector<int64_t>{9, 8, 9}), c10::ValueError);
  EXPECT_THROW(NccMok(4), c10::ValueError);
  EXPECT_THROW(NccMok(9, 0), c10::ValueError);
  EXPECT_THROW(Ncc(0), c10::ValueError);
  EXPECT_THROW(NccFp16(2), c10::ValueError);
  EXPECT_THROW(NccFp16(9, true, -1), c10::ValueError);
  EXPECT_THROW(NccGauss(8), c10::ValueError);
  EXPECT_THROW(NccGauss(9, 0), c10::ValueError);
  EXPECT_THROW(FastNcc(-3), c10::ValueError);
  NccVfaOptions options;
  options.scales = 5;  // 9, 7, 5, 3, 1: the last one that is left.
  EXPECT_NO_THROW(NccVfa{options});
  options.scales = 6;
  EXPECT_THROW(NccVfa{options}, c10::ValueError);
  options = {};
  options.kernel = 2;
  EXPECT_THROW(NccVfa{options}, c10::ValueError);
}

TEST(NccErrorsTest, WrongImagesAreRefused) {
  const at::Tensor image = Random({1, 1, 8, 8}, 1);
  const at::Tensor other = Random({1, 1, 8, 9}, 1);
  for (const Loss& loss :
       std::vector<Loss>{NccVxm(), NccMok(), Ncc(), NccFp16(), NccGauss(),
                         FastNcc(), NccVfa()}) {
    EXPECT_THROW(loss(image, other), c10::ValueError);
    EXPECT_THROW(loss(image, image / 0), c10::ValueError);
  }
  EXPECT_THROW(NccVxm(std::vector<int64_t>{9, 9, 9})(image, image),
               c10::ValueError);
}

}  // namespace
}  // namespace mir::losses::compat
