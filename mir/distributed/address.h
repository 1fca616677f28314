#ifndef MIR_DISTRIBUTED_ADDRESS_H_
#define MIR_DISTRIBUTED_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace mir::distributed {

// An address of `host`, in numbers. FAILED_PRECONDITION if nobody knows it.
absl::StatusOr<std::string> AddressOf(const std::string& host);

// Waits until somebody accepts connections at host:port, and returns the
// address, in numbers, where. LibTorch's store would wait too, but prints a
// stack trace each time that it tries, and takes four times as long.
//
// DEADLINE_EXCEEDED if nobody does within `timeout`; FAILED_PRECONDITION if the
// name means nothing for ten seconds (names of containers may come late).
absl::StatusOr<std::string> WaitForListener(const std::string& host, int port,
                                            absl::Duration timeout);

// The address of the interface through which this machine reaches `host`, in
// numbers. Sends nothing.
//
// FAILED_PRECONDITION if nobody knows the name or no route leads there.
absl::StatusOr<std::string> AddressTowards(const std::string& host);

// The address that this rank listens on for its peers: loopback if all are on
// one machine, whatever its name resolves to, else that towards the master.
//
// FAILED_PRECONDITION as above, or if the master's name is a loopback address
// here (as Debian's /etc/hosts has it) while there are other machines.
absl::StatusOr<std::string> ListenAddress(bool one_machine,
                                          const std::string& master_addr);

// The same for two processes if they share a loopback interface: the boot of
// the machine and the network namespace.
std::string MachineId();

}  // namespace mir::distributed

#endif  // MIR_DISTRIBUTED_ADDRESS_H_
