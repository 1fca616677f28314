#include "mir/distributed/address.h"

#include <netdb.h>
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
#include "mir/base/status_macros.h"

namespace mir::distributed {
namespace {

// Connecting a datagram socket chooses the route and binds the local address.
absl::StatusOr<std::string> LocalAddress(const addrinfo& remote) {
  const int fd = socket(remote.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::FailedPreconditionError(std::strerror(errno));
  const absl::Cleanup close_fd = [fd] { close(fd); };
  sockaddr_storage local = {};
  socklen_t length = sizeof(local);
  if (connect(fd, remote.ai_addr, remote.ai_addrlen) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) != 0) {
    return absl::FailedPreconditionError(std::strerror(errno));
  }
  char name[NI_MAXHOST];
  if (const int code =
          getnameinfo(reinterpret_cast<sockaddr*>(&local), length, name,
                      sizeof(name), nullptr, 0, NI_NUMERICHOST);
      code != 0) {
    return absl::FailedPreconditionError(gai_strerror(code));
  }
  return std::string(name);
}

}  // namespace

absl::StatusOr<std::string> AddressTowards(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int code =
          getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
      code != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("this machine does not know the host '", host,
                     "': ", gai_strerror(code)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found,
                                                                 freeaddrinfo);
  absl::Status first_error;
  for (const addrinfo* remote = found; remote != nullptr;
       remote = remote->ai_next) {
    absl::StatusOr<std::string> local = LocalAddress(*remote);
    if (local.ok()) return local;
    first_error.Update(local.status());
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "this machine has no route to '", host, "': ", first_error.message()));
}

absl::StatusOr<std::string> ListenAddress(bool one_machine,
                                          const std::string& master_addr,
                                          int master_port) {
  if (one_machine) return std::string("127.0.0.1");
  MIR_ASSIGN_OR_RETURN(const std::string address,
                       AddressTowards(master_addr, master_port));
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
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  char network[64] = "";
  const ssize_t length =
      readlink("/proc/self/ns/net", network, sizeof(network));
  return absl::StrCat(boot, " ",
                      absl::string_view(network, std::max<ssize_t>(length, 0)));
}

}  // namespace mir::distributed
