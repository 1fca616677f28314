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

// Whether a numeric address is one of this machine alone (127.x.y.z or ::1).
bool IsLoopback(const std::string& address);

}  // namespace mir::distributed

#endif  // MIR_DISTRIBUTED_ADDRESS_H_
