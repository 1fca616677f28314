#include "mir/precision/precision.h"

#include <gtest/gtest.h>

#include "mir/testing/status_matchers.h"

namespace mir::precision {
namespace {

using mir::testing::IsOkAndHolds;
using mir::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(PrecisionTest, NamesGoBothWays) {
  for (const Precision precision :
       {Precision::kFloat32, Precision::kFloat16, Precision::kBFloat16}) {
    EXPECT_THAT(ParsePrecision(PrecisionName(precision)),
                IsOkAndHolds(precision));
  }
  EXPECT_EQ(PrecisionName(Precision::kBFloat16), "bf16");
}

TEST(PrecisionTest, AnUnknownNameListsAllAndSuggestsTheNearest) {
  EXPECT_THAT(
      ParsePrecision("bf61"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("\"bf61\""), HasSubstr("fp32, fp16, bf16"),
                     HasSubstr("did you mean bf16?"))));
  EXPECT_THAT(ParsePrecision(""),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("fp32")));
}

}  // namespace
}  // namespace mir::precision
