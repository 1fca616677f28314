#ifndef MIR_DISTRIBUTED_TEST_RANKS_H_
#define MIR_DISTRIBUTED_TEST_RANKS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "mir/distributed/init.h"
#include "mir/testing/multi_process.h"

namespace mir::distributed {

// For tests: runs `body` on a thread per rank, connected over gloo through a
// store in memory, on the CPU. Returns when all have ended; an exception out of
// one, or a rank that cannot join, fails the test. A rank may return early: its
// connections close when all copies of its context are gone.
void RunThreadRanks(int world_size,
                    const std::function<void(Context context)>& body,
                    absl::Duration collective_timeout = absl::Seconds(60));

// For tests: runs `body` in a process per rank (see RunProcesses), connected
// through torchrun's variables and a store that rank 0 serves on a socket of
// this process.
std::vector<mir::testing::ProcessResult> RunProcessRanks(
    int world_size, const std::function<std::string(Context context)>& body,
    absl::Duration collective_timeout = absl::Seconds(60));

}  // namespace mir::distributed

#endif  // MIR_DISTRIBUTED_TEST_RANKS_H_
