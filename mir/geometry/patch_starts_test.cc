#include "mir/geometry/patch_starts.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mir::geometry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(PatchStartsTest, CoverTheAxisAndEndWithIt) {
  EXPECT_THAT(PatchStarts(16, 8, 4), ElementsAre(0, 4, 8));
  EXPECT_THAT(PatchStarts(15, 8, 4), ElementsAre(0, 4, 7));
  EXPECT_THAT(PatchStarts(8, 8, 4), ElementsAre(0));
  EXPECT_THAT(PatchStarts(9, 2, 5), ElementsAre(0, 5, 7));
}

TEST(PatchStartsTest, SaysWhatItWanted) {
  EXPECT_THAT([] { PatchStarts(4, 5, 1); },
              ThrowsMessage<c10::ValueError>(HasSubstr("1 to 4 voxels")));
  EXPECT_THAT([] { PatchStarts(4, 0, 1); },
              ThrowsMessage<c10::ValueError>(HasSubstr("1 to 4 voxels")));
  EXPECT_THAT([] { PatchStarts(4, 2, 0); },
              ThrowsMessage<c10::ValueError>(HasSubstr("stride")));
}

}  // namespace
}  // namespace mir::geometry
