#include "mir/launch/reserved_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace mir::launch {
namespace {

namespace fs = std::filesystem;

// The inode of the socket that listens on `port`, empty where none does.
std::string ListeningInode(int port) {
  const std::string suffix =
      absl::StrCat(":", absl::Hex(port, absl::kZeroPad4));
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      // sl local_address rem_address st … inode: columns 0, 1, 2, 3 and 9.
      const std::vector<std::string> words =
          absl::StrSplit(line, ' ', absl::SkipEmpty());
      if (words.size() < 10 || words[3] != "0A") continue;  // TCP_LISTEN.
      const std::string& local = words[1];
      const size_t colon = local.find(':');
      int local_port = 0;
      if (colon != std::string::npos &&
          absl::SimpleHexAtoi(local.substr(colon + 1), &local_port) &&
          local_port == port) {
        return words[9];
      }
    }
  }
  return "";
}

// " by process 12 (python3)", or nothing where that cannot be seen.
std::string Owner(int port) {
  const std::string inode = ListeningInode(port);
  if (inode.empty()) return "";
  const std::string wanted = absl::StrCat("socket:[", inode, "]");
  std::error_code error;
  for (const fs::directory_entry& process :
       fs::directory_iterator("/proc", error)) {
    const std::string pid = process.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    fs::directory_iterator descriptors(process.path() / "fd", error);
    if (error) continue;
    for (const fs::directory_entry& descriptor : descriptors) {
      if (fs::read_symlink(descriptor.path(), error) != wanted) continue;
      std::string name;
      std::ifstream comm(process.path() / "comm");
      std::getline(comm, name);
      return absl::StrCat(" by process ", pid, " (", name, ")");
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<ReservedPort> ReservedPort::Bind(int port, Use use,
                                                Addresses addresses) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return absl::InternalError(
        absl::StrCat("cannot make a socket: ", std::strerror(errno)));
  }
  ReservedPort reserved(fd, port);
  // Ports in TIME_WAIT are free, and others may bind a port that only waits.
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr =
      htonl(addresses == Addresses::kLoopback ? INADDR_LOOPBACK : INADDR_ANY);
  address.sin_port = htons(port);
  socklen_t size = sizeof(address);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      (use == Use::kHandOver && listen(fd, SOMAXCONN) != 0)) {
    const int why = errno;
    if (why == EADDRINUSE && port != 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("port ", port, " is in use", Owner(port)));
    }
    return absl::FailedPreconditionError(
        absl::StrCat("cannot bind port ", port, ": ", std::strerror(why)));
  }
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  reserved.port_ = ntohs(address.sin_port);
  return reserved;
}

ReservedPort::ReservedPort(ReservedPort&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), port_(other.port_) {}

ReservedPort& ReservedPort::operator=(ReservedPort&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(port_, other.port_);
  return *this;
}

ReservedPort::~ReservedPort() { Close(); }

void ReservedPort::Close() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

}  // namespace mir::launch
