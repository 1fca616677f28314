#include "mir/launch/exit_codes.h"

#include <gtest/gtest.h>

namespace mir::launch {
namespace {

TEST(ExitCodesTest, EachHasAMeaning) {
  for (const int code :
       {kOk, kOther, kArguments, kEnvironment, kData, kNumeric, kCheckpoint,
        kPeer, kStopped, kTimeout, kRunnerFault, kNotExecutable, kNotFound}) {
    EXPECT_NE(ExitCodeMeaning(code), "") << code;
  }
  EXPECT_EQ(ExitCodeMeaning(42), "");
}

}  // namespace
}  // namespace mir::launch
