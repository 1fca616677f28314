#include "mir/data/intensity.h"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "mir/testing/status_matchers.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::data {
namespace {

using mir::testing::AllClose;
using mir::testing::IsOk;
using mir::testing::StatusIs;
using mir::testing::TensorEq;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kEpsilon = 1.2e-7;

at::Tensor Applied(const std::string& text, const at::Tensor& image) {
  const auto intensity = ParseIntensity(text);
  EXPECT_THAT(intensity, IsOk());
  return ApplyIntensity(image, *intensity);
}

TEST(IntensityTest, MapsValuesAsItsTextSays) {
  const at::Tensor image = at::tensor({-1000.f, 0.f, 250.f, 1000.f, 3000.f});
  EXPECT_THAT(Applied("none", image), TensorEq(image));
  EXPECT_THAT(
      Applied("minmax", image),
      AllClose(at::tensor({0.f, .25f, .3125f, .5f, 1.f}), 2 * kEpsilon));
  EXPECT_THAT(Applied("window:0,1000", image),
              AllClose(at::tensor({0.f, 0.f, .25f, 1.f, 1.f}), 2 * kEpsilon));
  EXPECT_THAT(Applied("scale:0.001", image),
              AllClose(at::tensor({-1.f, 0.f, .25f, 1.f, 3.f}), 2 * kEpsilon));
}

TEST(IntensityTest, PercentilesLieBetweenValuesAsInNumpy) {
  // numpy.percentile([4, 1, 3, 2], [10, 50]) is [1.3, 2.5].
  const at::Tensor image = at::tensor({4.f, 1.f, 3.f, 2.f});
  EXPECT_THAT(Applied("percentile:10,50", image),
              AllClose(at::tensor({1.f, 0.f, 1.f, .7f / 1.2f}), 8 * kEpsilon));
  EXPECT_THAT(Applied("percentile:0,100", image),
              AllClose(at::tensor({1.f, 0.f, 2.f / 3, 1.f / 3}), 4 * kEpsilon));
  // Percentiles between the same two values.
  EXPECT_THAT(Applied("percentile:40,50", image),
              AllClose(at::tensor({1.f, 0.f, 1.f, 0.f}), kEpsilon));
}

TEST(IntensityTest, AConstantImageBecomesZero) {
  const at::Tensor image = at::full({2, 2, 2}, 7.f);
  for (const char* text : {"minmax", "percentile:1,99"}) {
    EXPECT_THAT(Applied(text, image), TensorEq(at::full({2, 2, 2}, 0.f)));
  }
  EXPECT_THAT(Applied("window:0,10", image),
              TensorEq(at::full({2, 2, 2}, .7f)));
}

TEST(IntensityTest, TextComesBackTheSame) {
  for (const char* text :
       {"none", "minmax", "percentile:0.5,99.5", "window:-1000,500",
        "window:-0.1,0.30000000000000004", "scale:0.00392156862745098",
        "scale:1e-07"}) {
    const auto intensity = ParseIntensity(text);
    ASSERT_THAT(intensity, IsOk());
    EXPECT_EQ(intensity->ToString(), text);
  }
  EXPECT_EQ(ParseIntensity("window: -1e3, 5")->ToString(), "window:-1000,5");
}

TEST(IntensityTest, ErrorsSayWhatWasWanted) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"", "minmax, percentile:LO,HI, window:LO,HI, scale:F or none"},
      {"minmx", "did you mean minmax?"},
      {"minmax:1,2", "wanted minmax alone"},
      {"percentile", "0 <= LO < HI <= 100"},
      {"percentile:5", "0 <= LO < HI <= 100"},
      {"percentile:-1,50", "0 <= LO < HI <= 100"},
      {"percentile:50,101", "0 <= LO < HI <= 100"},
      {"percentile:50,50", "0 <= LO < HI <= 100"},
      {"window:500,-1000", "LO < HI"},
      {"window:1,2,3", "LO < HI"},
      {"window:1,x", "numbers after the colon, got \"x\""},
      {"window:nan,1", "numbers after the colon, got \"nan\""},
      {"scale:0", "F not 0"},
      {"scale:", "numbers after the colon, got \"\""},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(ParseIntensity(text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(std::string("\"") + text + "\""),
                               HasSubstr(message))));
  }
}

TEST(IntensityTest, WantsFloatingVoxels) {
  EXPECT_THROW(ApplyIntensity(at::full({2}, 1, at::kInt), Intensity()),
               c10::ValueError);
  EXPECT_THROW(ApplyIntensity(at::full({0}, 1.f), Intensity()),
               c10::ValueError);
}

}  // namespace
}  // namespace mir::data
