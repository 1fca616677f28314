#include "mir/distributed/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mir/testing/status_matchers.h"

namespace mir::distributed {
namespace {

using mir::testing::IsOkAndHolds;
using mir::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

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

TEST(ListenAddressTest, RanksOfOneMachineUseLoopbackWhateverItsName) {
  EXPECT_THAT(ListenAddress(true, "no-such-host.invalid", 1234),
              IsOkAndHolds("127.0.0.1"));
}

TEST(ListenAddressTest, RanksOfSeveralMachinesMustNotUseLoopback) {
  EXPECT_THAT(ListenAddress(false, "127.0.0.1", 1234),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("MASTER_ADDR=127.0.0.1"),
                             HasSubstr("GLOO_SOCKET_IFNAME"))));
}

TEST(MachineIdTest, HasBothParts) {
  EXPECT_THAT(MachineId(), MatchesRegex("[-0-9a-f]+ net:.*"));
  EXPECT_EQ(MachineId(), MachineId());
}

}  // namespace
}  // namespace mir::distributed
