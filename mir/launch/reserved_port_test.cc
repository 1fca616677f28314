#include "mir/launch/reserved_port.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mir/testing/status_matchers.h"

namespace mir::launch {
namespace {

using ::mir::testing::IsOk;
using ::mir::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

// Whether a connection to `port` is taken up or queued.
bool Connects(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = Loopback(port);
  const bool ok = connect(fd, reinterpret_cast<const sockaddr*>(&address),
                          sizeof(address)) == 0;
  close(fd);
  return ok;
}

TEST(ReservedPortTest, AHandedOverSocketListens) {
  auto port = ReservedPort::Bind(0, ReservedPort::Use::kHandOver);
  ASSERT_THAT(port, IsOk());
  EXPECT_GT(port->port(), 0);
  EXPECT_TRUE(Connects(port->port()));
  port->Close();
  EXPECT_FALSE(Connects(port->port()));
}

TEST(ReservedPortTest, OthersAreDifferent) {
  const auto a = ReservedPort::Bind(0, ReservedPort::Use::kHandOver);
  const auto b = ReservedPort::Bind(0, ReservedPort::Use::kBindByName);
  ASSERT_THAT(a, IsOk());
  ASSERT_THAT(b, IsOk());
  EXPECT_NE(a->port(), b->port());
}

TEST(ReservedPortTest, AProgramThatNamesThePortMayListenOnIt) {
  const auto port = ReservedPort::Bind(0, ReservedPort::Use::kBindByName);
  ASSERT_THAT(port, IsOk());
  EXPECT_FALSE(Connects(port->port()));
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address = Loopback(port->port());
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
            0);
  EXPECT_EQ(listen(fd, 8), 0);
  EXPECT_TRUE(Connects(port->port()));
  close(fd);
}

TEST(ReservedPortTest, APortInUseIsNamedWithItsOwner) {
  const auto held = ReservedPort::Bind(0, ReservedPort::Use::kHandOver);
  ASSERT_THAT(held, IsOk());
  for (const auto use :
       {ReservedPort::Use::kHandOver, ReservedPort::Use::kBindByName}) {
    EXPECT_THAT(ReservedPort::Bind(held->port(), use),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr(absl::StrCat("port ", held->port(),
                                                      " is in use by process ",
                                                      getpid())))));
  }
}

}  // namespace
}  // namespace mir::launch
