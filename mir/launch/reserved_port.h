#ifndef MIR_LAUNCH_RESERVED_PORT_H_
#define MIR_LAUNCH_RESERVED_PORT_H_

#include "absl/status/statusor.h"

namespace mir::launch {

// A TCP port, of the loopback address or of all, that nobody else gets by
// asking for a free one, for as long as this object lives. See the README for
// its two uses.
class ReservedPort {
 public:
  enum class Use {
    kHandOver,    // Listens: the socket is for rank 0 to serve from.
    kBindByName,  // Does not listen: a program binds the port by number, with
                  // SO_REUSEADDR.
  };

  enum class Addresses {
    kLoopback,
    kAll,  // For processes on other machines.
  };

  // Port 0 for a free one. FAILED_PRECONDITION where the port is in use: it
  // names the process that listens on it, where this user may see it.
  static absl::StatusOr<ReservedPort> Bind(
      int port, Use use, Addresses addresses = Addresses::kLoopback);

  ReservedPort(ReservedPort&& other) noexcept;
  ReservedPort& operator=(ReservedPort&& other) noexcept;
  ~ReservedPort();

  int port() const { return port_; }
  // The socket; closed in programs that this process executes.
  int fd() const { return fd_; }

  // Gives the socket back. Rank 0 alone then holds it, so that the other ranks
  // are refused, not left waiting, when rank 0 is gone.
  void Close();

 private:
  ReservedPort(int fd, int port) : fd_(fd), port_(port) {}

  int fd_;
  int port_;
};

}  // namespace mir::launch

#endif  // MIR_LAUNCH_RESERVED_PORT_H_
