#ifndef MIR_DISTRIBUTED_RENDEZVOUS_H_
#define MIR_DISTRIBUTED_RENDEZVOUS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"

namespace mir::distributed {

// The part of a c10d store that meeting needs. Errors mean that the store went
// away.
class KeyValues {
 public:
  virtual ~KeyValues() = default;
  virtual absl::Status Set(const std::string& key,
                           const std::string& value) = 0;
  // The value, or nullopt if nobody set it yet. Never waits.
  virtual absl::StatusOr<absl::optional<std::string>> Find(
      const std::string& key) = 0;
  // Adds to a counter that starts at 0, and returns its new value.
  virtual absl::StatusOr<int64_t> Add(const std::string& key,
                                      int64_t amount) = 0;
};

// What a rank brings to the meeting.
struct Identity {
  int rank = 0;
  int world_size = 1;
  std::string fingerprint;  // Must be the same on all ranks.
  std::string machine;      // Ranks with the same share a loopback interface.
};

// What all ranks then know.
struct Meeting {
  // For the store's keys: these ranks share it, and no earlier meeting in the
  // same store had it.
  std::string prefix;
  bool one_machine = false;  // All have the same `machine`.
};

// Waits until all ranks are there, and compares what they bring. Rank 0 numbers
// the meetings of a store, since torchrun's agents do not count restarts alike
// (each counts its own), and answers the others, who draw numbered tickets.
//
// Errors: FAILED_PRECONDITION where two ranks differ in world_size or
// fingerprint, naming both, or where two have the same number;
// DEADLINE_EXCEEDED with the numbers of the ranks that did not come.
absl::StatusOr<Meeting> Meet(KeyValues& store, const Identity& self,
                             absl::Duration timeout);

}  // namespace mir::distributed

#endif  // MIR_DISTRIBUTED_RENDEZVOUS_H_
