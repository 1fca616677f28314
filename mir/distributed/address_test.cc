#include "mir/distributed/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mir/testing/status_matchers.h"

namespace mir::distributed {
namespace {

using mir::testing::IsOkAndHolds;
using mir::testing::StatusIs;
using ::testing::HasSubstr;

TEST(AddressTowardsTest, ThisMachineIsReachedThroughLoopback) {
  EXPECT_THAT(AddressTowards("127.0.0.1", 1234), IsOkAndHolds("127.0.0.1"));
}

TEST(AddressTowardsTest, NamesAHostThatNobodyKnows) {
  EXPECT_THAT(AddressTowards("no-such-host.invalid", 1234),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("'no-such-host.invalid'")));
}

TEST(AddressTowardsTest, NamesAHostWithoutARoute) {
  // Nothing may be sent to the address of no interface.
  EXPECT_THAT(AddressTowards("255.255.255.255", 1234),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("no route to '255.255.255.255'")));
}

TEST(IsLoopbackTest, KnowsBothFamilies) {
  EXPECT_TRUE(IsLoopback("127.0.1.1"));
  EXPECT_TRUE(IsLoopback("::1"));
  EXPECT_FALSE(IsLoopback("10.9.0.1"));
  EXPECT_FALSE(IsLoopback("fe80::1"));
}

}  // namespace
}  // namespace mir::distributed
