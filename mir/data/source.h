#ifndef MIR_DATA_SOURCE_H_
#define MIR_DATA_SOURCE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "mir/data/pair.h"

namespace mir::data {

// Where pairs come from. A pair is a pure function of what the source was made
// with, the epoch and the index: neither the order of the calls, nor the
// thread, process or rank that makes them, changes it. That is what resume and
// distributed sampling stand on.
class PairSource {
 public:
  virtual ~PairSource() = default;

  // Pairs in an epoch; at least 1.
  virtual int64_t size() const = 0;

  // The pair at `index`, 0 <= index < size(), of `epoch`, 0 or more. Calls may
  // overlap. A validation source ignores the epoch.
  //
  // Errors name the file, or the index if it is outside.
  virtual absl::StatusOr<Pair> Get(int64_t epoch, int64_t index) const = 0;
};

}  // namespace mir::data

#endif  // MIR_DATA_SOURCE_H_
