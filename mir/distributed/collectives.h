#ifndef MIR_DISTRIBUTED_COLLECTIVES_H_
#define MIR_DISTRIBUTED_COLLECTIVES_H_

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "mir/distributed/init.h"

namespace mir::distributed {

// All functions here but IsMainProcess, IsPeerFailure and CatchCollective are
// collectives: every rank calls them, in the same order, from one thread at a
// time. In a single process they return their argument. They wait for the
// result (on CUDA, the current stream does). A peer that died or did not take
// part within the collective timeout is UNAVAILABLE with the exit code kPeer.

// True on the rank that prints and saves.
bool IsMainProcess(const Context& context);

// Element-wise over the ranks' tensors, which have the same shape and dtype and
// lie on the CPU or context.device. Returns a new tensor, outside autograd. The
// mean of integers is an INVALID_ARGUMENT; a NaN may get lost in a maximum.
absl::StatusOr<at::Tensor> AllReduceSum(const Context& context,
                                        const at::Tensor& tensor);
absl::StatusOr<at::Tensor> AllReduceMax(const Context& context,
                                        const at::Tensor& tensor);
absl::StatusOr<at::Tensor> AllReduceMean(const Context& context,
                                         const at::Tensor& tensor);

absl::StatusOr<double> AllReduceSum(const Context& context, double value);
// NaN if any value is.
absl::StatusOr<double> AllReduceMax(const Context& context, double value);
// The mean of the ranks' values, each counted `weight` times (how many cases it
// is the mean of). A value of weight 0 does not count, whatever it is; NaN if
// all weights are 0. A negative weight is an INVALID_ARGUMENT.
absl::StatusOr<double> AllReduceMean(const Context& context, double value,
                                     double weight = 1);

// Every rank's values, which may differ in number, by rank; on all ranks.
absl::StatusOr<std::vector<std::vector<double>>> GatherDoubles(
    const Context& context, absl::Span<const double> values);

// Puts together what the ranks measured on their shares of `case_count` cases:
// `values` holds `width` numbers for each case of ShareOf(case_count, rank,
// world), in that order. Returns the numbers of all cases, in the order of the
// cases, each exactly once; on all ranks. FAILED_PRECONDITION names a rank that
// brought another number of values than its share has.
absl::StatusOr<std::vector<double>> GatherShares(
    const Context& context, int64_t case_count, int64_t width,
    absl::Span<const double> values);

// The string of rank `root`, on all ranks; others' `text` is ignored.
absl::StatusOr<std::string> BroadcastString(const Context& context,
                                            const std::string& text,
                                            int root = 0);

// Waits until every rank has come here, for at most `deadline`, or for
// UNAVAILABLE with the numbers of the ranks that did not.
absl::Status Barrier(const Context& context, absl::Duration deadline);

// Whether an exception (out of a backward pass under DistributedModel, say)
// comes from a peer that died, left or did not take part, rather than from this
// rank's own work: the worker then ends with the exit code 20, and somebody
// else with the cause.
bool IsPeerFailure(const std::exception& error);

// As CatchTorch, and turns what IsPeerFailure recognises into UNAVAILABLE with
// the exit code 20. The group of `context` is then left alone by Cleanup.
absl::Status CatchCollective(const Context& context,
                             const std::function<absl::Status()>& body);

}  // namespace mir::distributed

#endif  // MIR_DISTRIBUTED_COLLECTIVES_H_
