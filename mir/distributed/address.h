#ifndef MIR_DISTRIBUTED_ADDRESS_H_
#define MIR_DISTRIBUTED_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"

namespace mir::distributed {

// The address of the interface through which this machine reaches `host`, in
// numbers. Sends nothing.
//
// FAILED_PRECONDITION if the name means nothing here or no route leads there.
absl::StatusOr<std::string> AddressTowards(const std::string& host, int port);

// The address that this rank listens on for its peers: loopback if all are on
// one machine, whatever its name resolves to, else that towards the master.
//
// FAILED_PRECONDITION as above, or if the master's name is a loopback address
// here (as Debian's /etc/hosts has it) while there are other machines.
absl::StatusOr<std::string> ListenAddress(bool one_machine,
                                          const std::string& master_addr,
                                          int master_port);

// The same for two processes if they share a loopback interface: the boot of
// the machine and the network namespace.
std::string MachineId();

}  // namespace mir::distributed

#endif  // MIR_DISTRIBUTED_ADDRESS_H_
