#include "mir/distributed/address.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "mir/base/status_macros.h"

namespace mir::distributed {
namespace {

constexpr absl::Duration kNameTimeout = absl::Seconds(10);
constexpr absl::Duration kConnectTimeout = absl::Seconds(5);
constexpr absl::Duration kPause = absl::Milliseconds(20);
constexpr int kAnyPort = 9;  // Of datagrams that are never sent.

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

absl::StatusOr<Addresses> Resolve(const std::string& host, int port,
                                  int socket_type) {
  addrinfo hints = {};
  hints.ai_socktype = socket_type;
  addrinfo* found = nullptr;
  const int code =
      getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (code == 0) return Addresses(found, freeaddrinfo);
  return absl::FailedPreconditionError(
      absl::StrCat("this machine does not know the host '", host,
                   "': ", gai_strerror(code)));
}

absl::StatusOr<std::string> InNumbers(const sockaddr* address,
                                      socklen_t length) {
  char name[NI_MAXHOST];
  if (const int code = getnameinfo(address, length, name, sizeof(name), nullptr,
                                   0, NI_NUMERICHOST);
      code != 0) {
    return absl::FailedPreconditionError(gai_strerror(code));
  }
  return std::string(name);
}

// Connecting a datagram socket chooses the route and binds the local address.
absl::StatusOr<std::string> LocalAddress(const addrinfo& remote) {
  const int fd = socket(remote.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::FailedPreconditionError(std::strerror(errno));
  const absl::Cleanup close_fd = [fd] { close(fd); };
  sockaddr_storage local = {};
  auto* generic = reinterpret_cast<sockaddr*>(&local);
  socklen_t length = sizeof(local);
  if (connect(fd, remote.ai_addr, remote.ai_addrlen) != 0 ||
      getsockname(fd, generic, &length) != 0) {
    return absl::FailedPreconditionError(std::strerror(errno));
  }
  return InNumbers(generic, length);
}

// Whether somebody accepts a connection there before `deadline`.
bool Accepts(const addrinfo& remote, absl::Time deadline) {
  const int fd =
      socket(remote.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  const absl::Cleanup close_fd = [fd] { close(fd); };
  if (connect(fd, remote.ai_addr, remote.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd ready = {fd, POLLOUT, 0};
  const absl::Duration wait =
      std::clamp(deadline - absl::Now(), absl::ZeroDuration(), kConnectTimeout);
  if (poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(wait))) != 1) {
    return false;
  }
  int error = 0;
  socklen_t length = sizeof(error);
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 &&
         error == 0;
}

}  // namespace

absl::StatusOr<std::string> AddressOf(const std::string& host) {
  MIR_ASSIGN_OR_RETURN(const Addresses addresses,
                       Resolve(host, kAnyPort, SOCK_STREAM));
  return InNumbers(addresses->ai_addr, addresses->ai_addrlen);
}

absl::StatusOr<std::string> WaitForListener(const std::string& host, int port,
                                            absl::Duration timeout) {
  const absl::Time start = absl::Now();
  const absl::Time deadline = start + timeout;
  while (true) {
    absl::StatusOr<Addresses> addresses = Resolve(host, port, SOCK_STREAM);
    if (addresses.ok()) {
      for (const addrinfo* remote = addresses->get(); remote != nullptr;
           remote = remote->ai_next) {
        if (Accepts(*remote, deadline)) {
          return InNumbers(remote->ai_addr, remote->ai_addrlen);
        }
      }
    } else if (absl::Now() > std::min(deadline, start + kNameTimeout)) {
      return addresses.status();
    }
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("nobody answers at ", host, ":", port, " after ",
                       absl::FormatDuration(timeout)));
    }
    absl::SleepFor(kPause);
  }
}

absl::StatusOr<std::string> AddressTowards(const std::string& host) {
  MIR_ASSIGN_OR_RETURN(const Addresses addresses,
                       Resolve(host, kAnyPort, SOCK_DGRAM));
  absl::Status first_error;
  for (const addrinfo* remote = addresses.get(); remote != nullptr;
       remote = remote->ai_next) {
    absl::StatusOr<std::string> local = LocalAddress(*remote);
    if (local.ok()) return local;
    first_error.Update(local.status());
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "this machine has no route to '", host, "': ", first_error.message()));
}

absl::StatusOr<std::string> ListenAddress(bool one_machine,
                                          const std::string& master_addr) {
  if (one_machine) return std::string("127.0.0.1");
  MIR_ASSIGN_OR_RETURN(const std::string address, AddressTowards(master_addr));
  if (absl::StartsWith(address, "127.") || address == "::1") {
    return absl::FailedPreconditionError(absl::StrCat(
        "MASTER_ADDR=", master_addr, " is ", address,
        " on this machine, where the ranks of other machines cannot reach it; "
        "set GLOO_SOCKET_IFNAME to the interface that they can reach"));
  }
  return address;
}

std::string MachineId() {
  std::string boot;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::getline(file, boot);
  char network[64] = "";
  const ssize_t length =
      readlink("/proc/self/ns/net", network, sizeof(network));
  return absl::StrCat(boot, " ",
                      absl::string_view(network, std::max<ssize_t>(length, 0)));
}

}  // namespace mir::distributed
