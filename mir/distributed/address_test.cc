#include "mir/distributed/address.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "mir/testing/status_matchers.h"

namespace mir::distributed {
namespace {

using mir::testing::IsOkAndHolds;
using mir::testing::StatusIs;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(AddressOfTest, ResolvesNamesAndNumbers) {
  EXPECT_THAT(AddressOf("127.0.0.1"), IsOkAndHolds("127.0.0.1"));
  EXPECT_THAT(AddressOf("localhost"), IsOkAndHolds(AnyOf("127.0.0.1", "::1")));
  EXPECT_THAT(AddressOf("no-such-host.invalid"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("'no-such-host.invalid'")));
}

TEST(WaitForListenerTest, WaitsUntilSomebodyListens) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(fd, generic, length), 0);
  ASSERT_EQ(getsockname(fd, generic, &length), 0);
  const int port = ntohs(address.sin_port);
  EXPECT_THAT(WaitForListener("127.0.0.1", port, absl::Milliseconds(100)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       absl::StrCat("nobody answers at 127.0.0.1:", port,
                                    " after 100ms")));
  std::thread later([fd] {
    absl::SleepFor(absl::Milliseconds(200));
    EXPECT_EQ(listen(fd, 1), 0);
  });
  const absl::Time start = absl::Now();
  EXPECT_THAT(WaitForListener("127.0.0.1", port, absl::Seconds(30)),
              IsOkAndHolds("127.0.0.1"));
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(150));
  later.join();
  close(fd);
}

TEST(WaitForListenerTest, NamesAHostThatNobodyKnows) {
  EXPECT_THAT(
      WaitForListener("no-such-host.invalid", 1, absl::Milliseconds(100)),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("'no-such-host.invalid'")));
}

TEST(AddressTowardsTest, ThisMachineIsReachedThroughLoopback) {
  EXPECT_THAT(AddressTowards("127.0.0.1"), IsOkAndHolds("127.0.0.1"));
}

TEST(AddressTowardsTest, NamesAHostThatNobodyKnows) {
  EXPECT_THAT(AddressTowards("no-such-host.invalid"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("'no-such-host.invalid'")));
}

TEST(AddressTowardsTest, NamesAHostWithoutARoute) {
  // Nothing may be sent to the address of no interface.
  EXPECT_THAT(AddressTowards("255.255.255.255"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("no route to '255.255.255.255'")));
}

TEST(ListenAddressTest, RanksOfOneMachineUseLoopbackWhateverItsName) {
  EXPECT_THAT(ListenAddress(true, "no-such-host.invalid"),
              IsOkAndHolds("127.0.0.1"));
}

TEST(ListenAddressTest, RanksOfSeveralMachinesMustNotUseLoopback) {
  EXPECT_THAT(ListenAddress(false, "127.0.0.1"),
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
