#include "mir/distributed/collectives.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/exception.h>

#include <algorithm>
#include <limits>
#include <typeinfo>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "mir/base/catch_torch.h"
#include "mir/base/exit_status.h"
#include "mir/base/status_macros.h"
#include "mir/distributed/group.h"
#include "mir/distributed/sampler.h"
#include "mir/launch/exit_codes.h"

namespace mir::distributed {
namespace {

using c10d::ReduceOp;

absl::Status PeerFailure(const Context& context, absl::string_view message) {
  context.group->peer_failed = true;
  message = message.substr(0, message.find('\n'));
  // Where in LibTorch's sources it was noticed helps nobody.
  const size_t place_end = message.find("] ");
  if (absl::StartsWith(message, "[/") && place_end != message.npos) {
    message.remove_prefix(place_end + 2);
  }
  return WithExitCode(
      absl::UnavailableError(
          absl::StrCat("rank ", context.world.rank, " lost a peer: ", message)),
      launch::kPeer);
}

// Runs one collective of the group.
absl::Status Run(
    const Context& context,
    const std::function<c10::intrusive_ptr<c10d::Work>(c10d::ProcessGroup&)>&
        start) {
  return CatchCollective(context, [&] {
    start(*context.group->processes)->wait();
    return absl::OkStatus();
  });
}

absl::StatusOr<at::Tensor> AllReduce(const Context& context,
                                     const at::Tensor& tensor, ReduceOp op) {
  if (context.group == nullptr) return tensor;
  std::vector<at::Tensor> result = {
      tensor.detach().clone(at::MemoryFormat::Contiguous)};
  MIR_RETURN_IF_ERROR(Run(context, [&](c10d::ProcessGroup& processes) {
    c10d::AllreduceOptions options;
    options.reduceOp = op;
    return processes.allreduce(result, options);
  }));
  return result[0];
}

at::Tensor ToTensor(absl::Span<const double> values) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())},
                                at::TensorOptions(at::kDouble));
  std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<double>());
  return tensor;
}

// Every rank's `tensor`, all of the same shape, in the order of the ranks.
absl::StatusOr<std::vector<at::Tensor>> AllGather(const Context& context,
                                                  const at::Tensor& tensor) {
  std::vector<at::Tensor> input = {tensor};
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int rank = 0; rank < context.world.size; ++rank) {
    outputs[0].push_back(at::empty_like(tensor));
  }
  MIR_RETURN_IF_ERROR(Run(context, [&](c10d::ProcessGroup& processes) {
    return processes.allgather(outputs, input);
  }));
  return outputs[0];
}

absl::Status Broadcast(const Context& context, at::Tensor tensor, int root) {
  std::vector<at::Tensor> tensors = {tensor};
  return Run(context, [&](c10d::ProcessGroup& processes) {
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return processes.broadcast(tensors, options);
  });
}

std::string BarrierKey(int64_t number, int rank) {
  return absl::StrCat("barrier/", number, "/", rank);
}

// The ranks that did not come to a barrier, as the store knows.
std::vector<int> MissingAt(const Context& context, int64_t number) {
  std::vector<int> missing;
  for (int rank = 0; rank < context.world.size; ++rank) {
    if (!context.group->store->check({BarrierKey(number, rank)})) {
      missing.push_back(rank);
    }
  }
  return missing;
}

}  // namespace

bool IsMainProcess(const Context& context) { return context.world.rank == 0; }

absl::StatusOr<at::Tensor> AllReduceSum(const Context& context,
                                        const at::Tensor& tensor) {
  return AllReduce(context, tensor, ReduceOp::SUM);
}

absl::StatusOr<at::Tensor> AllReduceMax(const Context& context,
                                        const at::Tensor& tensor) {
  return AllReduce(context, tensor, ReduceOp::MAX);
}

absl::StatusOr<at::Tensor> AllReduceMean(const Context& context,
                                         const at::Tensor& tensor) {
  if (!tensor.is_floating_point()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the mean over ranks needs a floating tensor, got ",
                     c10::toString(tensor.scalar_type())));
  }
  MIR_ASSIGN_OR_RETURN(at::Tensor sum, AllReduceSum(context, tensor));
  return context.group == nullptr ? sum : sum.div_(context.world.size);
}

absl::StatusOr<double> AllReduceSum(const Context& context, double value) {
  if (context.group == nullptr) return value;
  MIR_ASSIGN_OR_RETURN(const at::Tensor sum,
                       AllReduceSum(context, ToTensor({value})));
  return sum.const_data_ptr<double>()[0];
}

absl::StatusOr<double> AllReduceMax(const Context& context, double value) {
  // Not the backends' maximum, whose NaN may lose.
  MIR_ASSIGN_OR_RETURN(const auto by_rank, GatherDoubles(context, {value}));
  double maximum = -std::numeric_limits<double>::infinity();
  for (const std::vector<double>& values : by_rank) {
    if (!(values[0] <= maximum)) maximum = values[0];
    if (maximum != maximum) break;
  }
  return maximum;
}

absl::StatusOr<double> AllReduceMean(const Context& context, double value,
                                     double weight) {
  if (!(weight >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a weight must not be negative, got ", weight));
  }
  const double weighted = weight == 0 ? 0 : value * weight;
  double sums[] = {weighted, weight};
  if (context.group != nullptr) {
    MIR_ASSIGN_OR_RETURN(const at::Tensor all,
                         AllReduceSum(context, ToTensor(sums)));
    std::copy_n(all.const_data_ptr<double>(), 2, sums);
  } else if (weight > 0) {
    return value;
  }
  return sums[1] == 0 ? std::numeric_limits<double>::quiet_NaN()
                      : sums[0] / sums[1];
}

absl::StatusOr<std::vector<std::vector<double>>> GatherDoubles(
    const Context& context, absl::Span<const double> values) {
  std::vector<std::vector<double>> by_rank(
      1, std::vector<double>(values.begin(), values.end()));
  if (context.group == nullptr) return by_rank;
  MIR_ASSIGN_OR_RETURN(
      const std::vector<at::Tensor> counts,
      AllGather(context, ToTensor({static_cast<double>(values.size())})));
  by_rank.clear();
  size_t most = 0;
  for (const at::Tensor& count : counts) {
    by_rank.emplace_back(
        static_cast<size_t>(count.const_data_ptr<double>()[0]));
    most = std::max(most, by_rank.back().size());
  }
  if (most == 0) return by_rank;
  std::vector<double> padded(values.begin(), values.end());
  padded.resize(most);
  MIR_ASSIGN_OR_RETURN(const std::vector<at::Tensor> all,
                       AllGather(context, ToTensor(padded)));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    std::copy_n(all[rank].const_data_ptr<double>(), by_rank[rank].size(),
                by_rank[rank].begin());
  }
  return by_rank;
}

absl::StatusOr<std::vector<double>> GatherShares(
    const Context& context, int64_t case_count, int64_t width,
    absl::Span<const double> values) {
  MIR_ASSIGN_OR_RETURN(const auto by_rank, GatherDoubles(context, values));
  std::vector<double> result(case_count * width);
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    const std::vector<int64_t> share =
        ShareOf(case_count, static_cast<int>(rank), context.world.size);
    if (by_rank[rank].size() != share.size() * width) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", rank, " brought ", by_rank[rank].size(),
                       " numbers for its ", share.size(), " of ", case_count,
                       " cases, ", width, " are wanted for each"));
    }
    for (size_t i = 0; i < share.size(); ++i) {
      std::copy_n(by_rank[rank].begin() + i * width, width,
                  result.begin() + share[i] * width);
    }
  }
  return result;
}

absl::StatusOr<std::string> BroadcastString(const Context& context,
                                            const std::string& text, int root) {
  if (context.group == nullptr) return text;
  at::Tensor size = ToTensor({static_cast<double>(text.size())});
  MIR_RETURN_IF_ERROR(Broadcast(context, size, root));
  std::string result = text;
  result.resize(static_cast<size_t>(size.const_data_ptr<double>()[0]));
  if (result.empty()) return result;
  const at::Tensor bytes = at::from_blob(
      result.data(), {static_cast<int64_t>(result.size())}, at::kByte);
  MIR_RETURN_IF_ERROR(Broadcast(context, bytes, root));
  return result;
}

absl::Status Barrier(const Context& context, absl::Duration deadline) {
  if (context.group == nullptr) return absl::OkStatus();
  const int64_t number = context.group->barriers++;
  absl::Status status = CatchCollective(context, [&] {
    context.group->store->set(BarrierKey(number, context.world.rank), "");
    c10d::BarrierOptions options;
    options.timeout = std::max(absl::ToChronoMilliseconds(deadline),
                               std::chrono::milliseconds(1));
    context.group->processes->monitoredBarrier(options,
                                               /*wait_all_ranks=*/true);
    return absl::OkStatus();
  });
  if (status.ok()) return status;
  std::vector<int> missing;
  const absl::Status look = CatchCollective(context, [&] {
    missing = MissingAt(context, number);
    return absl::OkStatus();
  });
  if (!look.ok() || missing.empty()) return status;
  return PeerFailure(context,
                     absl::StrCat(missing.size() == 1 ? "rank " : "ranks ",
                                  absl::StrJoin(missing, ", "),
                                  " did not come to the barrier within ",
                                  absl::FormatDuration(deadline)));
}

bool IsPeerFailure(const std::exception& error) {
  // The store's, the sockets' and NCCL's exceptions have a type of their own.
  if (dynamic_cast<const c10::DistError*>(&error) != nullptr) return true;
  // Those of gloo have one that LibTorch does not show, and say where they come
  // from where it wraps them.
  return absl::StartsWith(typeid(error).name(), "N4gloo") ||
         absl::StrContains(error.what(), "/gloo/");
}

absl::Status CatchCollective(const Context& context,
                             const std::function<absl::Status()>& body) {
  return CatchTorch([&] {
    try {
      return body();
    } catch (const std::exception& error) {
      if (context.group == nullptr || !IsPeerFailure(error)) throw;
      return PeerFailure(context, error.what());
    }
  });
}

}  // namespace mir::distributed
