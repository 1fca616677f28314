#include "mir/distributed/ddp.h"

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <string>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "mir/distributed/collectives.h"
#include "mir/distributed/compression.h"
#include "mir/distributed/group.h"
#include "mir/distributed/named_tensors.h"

namespace mir::distributed {
namespace {

constexpr size_t kBroadcastBytes = 250 << 20;

// Within the constructor, where a failed collective is an exception as it is
// within the backward pass.
template <typename T>
T ValueOrThrow(absl::StatusOr<T> result) {
  if (!result.ok()) {
    C10_THROW_ERROR(DistBackendError, std::string(result.status().message()));
  }
  return *std::move(result);
}

// A line per tensor.
std::string Describe(const NamedTensors& tensors) {
  std::ostringstream text;
  for (const auto& [name, tensor] : tensors) {
    text << name << " " << tensor.scalar_type() << " " << tensor.sizes()
         << " strides " << tensor.strides()
         << (tensor.requires_grad() ? "" : " not trained") << "\n";
  }
  return text.str();
}

// The first line in which two descriptions differ, in words.
std::string FirstDifference(absl::string_view first, absl::string_view own,
                            int rank) {
  const std::vector<absl::string_view> left = absl::StrSplit(first, '\n');
  const std::vector<absl::string_view> right = absl::StrSplit(own, '\n');
  for (size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
    const absl::string_view a = i < left.size() ? left[i] : "";
    const absl::string_view b = i < right.size() ? right[i] : "";
    if (a == b) continue;
    const auto or_none = [](absl::string_view line) {
      return line.empty() ? "no such tensor" : line;
    };
    return absl::StrCat("the ranks' models differ: rank 0 has ", or_none(a),
                        ", rank ", rank, " has ", or_none(b));
  }
  return "";
}

// Reducer would compare shapes alone, and leave rank 0 waiting.
void CheckSameOnAllRanks(const Context& context, const NamedTensors& tensors) {
  const std::string own = Describe(tensors);
  const std::string first = ValueOrThrow(BroadcastString(context, own));
  const std::string difference =
      FirstDifference(first, own, context.world.rank);
  const auto differs =
      ValueOrThrow(GatherDoubles(context, {difference.empty() ? 0. : 1.}));
  for (size_t rank = 0; rank < differs.size(); ++rank) {
    if (differs[rank][0] == 0) continue;
    TORCH_CHECK_VALUE(false, ValueOrThrow(BroadcastString(
                                 context, difference, static_cast<int>(rank))));
  }
}

void BroadcastFromFirst(Group& group, const NamedTensors& tensors) {
  if (tensors.empty()) return;
  std::vector<at::Tensor> values;
  for (const auto& item : tensors) values.push_back(item.second.detach());
  c10d::broadcast_coalesced(group.processes, values, kBroadcastBytes);
}

// LibTorch recommends, once per process, to switch find_unused_parameters off.
// It is on by default here for all models, whether they need it or not.
class WithoutAdvice : public c10::WarningHandler {
 public:
  WithoutAdvice() : next_(*c10::WarningUtils::get_warning_handler()) {}

  void process(const c10::Warning& warning) override {
    if (!absl::StrContains(warning.msg(), "find_unused_parameters=True")) {
      next_.process(warning);
    }
  }

 private:
  c10::WarningHandler& next_;
};

// In the first backward pass over a static graph gradients are exchanged when
// all have come, since it is not known yet how often each one does.
void DelayExchange(c10d::Reducer& reducer,
                   const std::vector<at::Tensor>& roots) {
  auto queued = std::make_shared<bool>(false);
  for (const at::Tensor& root : roots) {
    if (!root.requires_grad()) continue;
    root.register_hook([&reducer, queued](const at::Tensor&) {
      if (std::exchange(*queued, true)) return;
      torch::autograd::Engine::get_default_engine().queue_callback(
          [&reducer] { reducer.delay_all_reduce(); });
    });
  }
}

}  // namespace

struct DistributedModel::State {
  State(Context context, const DdpOptions& options, NamedTensors parameters)
      : context(std::move(context)),
        options(options),
        parameters(std::move(parameters)) {}

  Group& group() const { return *context.group; }

  // What the Reducer says when gradients are missing, with names.
  std::string MissingGradients() const {
    std::string names;
    for (const auto& [name, parameter] : parameters) {
      if (!parameter.grad().defined()) {
        absl::StrAppend(&names, names.empty() ? "" : ", ", name);
      }
    }
    return absl::StrCat(
        "some parameters got no gradient in this step",
        names.empty() ? "" : ": ", names,
        "; set find_unused_parameters if the model does not use them");
  }

  Context context;
  DdpOptions options;
  NamedTensors parameters;
  bool sync = true;          // What the last BeforeForward said.
  bool graph_known = false;  // Of a static graph: its first step began.
  std::shared_ptr<c10d::Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;  // The reducer uses it unasked.
};

absl::StatusOr<Compression> ParseCompression(absl::string_view name) {
  if (name == "none") return Compression::kNone;
  if (name == "fp16") return Compression::kFloat16;
  if (name == "bf16") return Compression::kBFloat16;
  return absl::InvalidArgumentError(absl::StrCat(
      "wanted a gradient compression of none, fp16 or bf16, got '", name, "'"));
}

DistributedModel::DistributedModel(torch::nn::Module& module,
                                   const Context& context,
                                   const DdpOptions& options)
    : module_(&module) {
  if (context.group == nullptr) return;
  state_ = std::make_unique<State>(context, options, TrainedParameters(module));
  TORCH_CHECK_VALUE(!state_->parameters.empty(),
                    "the module has no parameter to train");
  const NamedTensors tensors = AllTensors(module);
  CheckSameOnAllRanks(context, tensors);
  BroadcastFromFirst(*context.group, tensors);

  std::vector<at::Tensor> parameters;
  std::unordered_map<size_t, std::string> names;
  for (const auto& [name, parameter] : state_->parameters) {
    names[parameters.size()] = name;
    parameters.push_back(parameter);
  }
  const std::vector<bool> sparse(parameters.size(), false);
  // One bucket until the order of the gradients is known, except where it may
  // change from step to step.
  const std::vector<size_t> limits =
      options.find_unused_parameters
          ? std::vector<size_t>{c10d::kDefaultFirstBucketBytes,
                                static_cast<size_t>(options.bucket_bytes)}
          : std::vector<size_t>{std::numeric_limits<size_t>::max()};
  std::vector<std::vector<size_t>> buckets = std::get<0>(
      c10d::compute_bucket_assignment_by_size(parameters, limits, sparse));
  std::reverse(buckets.begin(), buckets.end());  // As gradients come.
  state_->reducer = std::make_shared<c10d::Reducer>(
      std::move(parameters), std::move(buckets), context.group->processes,
      sparse, options.bucket_bytes, options.find_unused_parameters,
      options.gradient_as_bucket_view, std::move(names),
      c10d::kDefaultFirstBucketBytes,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
      /*bucket_bytes_cap_list=*/std::vector<int64_t>());
  state_->logger = std::make_shared<c10d::Logger>(state_->reducer);
  state_->reducer->set_logger(state_->logger);
  const at::Device device = state_->parameters[0].second.device();
  state_->logger->set_construction_data_and_log(
      module.name(),
      device.is_cuda() ? std::vector<int>{device.index()} : std::vector<int>(),
      /*output_device=*/device.is_cuda() ? device.index() : -1,
      options.broadcast_buffers,
      /*has_sync_bn=*/static_cast<bool>(options.sync_batchnorm),
      options.static_graph);
  if (options.static_graph) state_->reducer->set_static_graph();
  if (options.sync_batchnorm) {
    options.sync_batchnorm(module, [group = context.group](at::Tensor& sums) {
      std::vector<at::Tensor> tensors = {sums};
      group->processes->allreduce(tensors)->wait();
    });
  }
  if (options.compression != Compression::kNone) {
    state_->reducer->register_comm_hook(
        MakeCompressionHook(context.group->processes, options.compression));
  }
}

DistributedModel::~DistributedModel() = default;
DistributedModel::DistributedModel(DistributedModel&&) noexcept = default;
DistributedModel& DistributedModel::operator=(DistributedModel&&) noexcept =
    default;

void DistributedModel::BeforeForward(bool sync) {
  if (state_ == nullptr) return;
  state_->sync = sync;
  if (sync) {
    state_->logger->set_runtime_stats_and_log();
    state_->reducer->prepare_for_forward();
  }
  state_->reducer->rebuild_buckets();
  if (sync && state_->options.broadcast_buffers) BroadcastBuffers();
}

void DistributedModel::BeforeBackward(const std::vector<at::Tensor>& roots) {
  if (state_ == nullptr || !state_->sync) return;
  WithoutAdvice handler;
  const c10::WarningUtils::WarningHandlerGuard guard(&handler);
  state_->group().under_way = true;
  // A static graph's unused parameters are those of its first step.
  const bool search =
      state_->options.find_unused_parameters && !state_->options.static_graph;
  state_->reducer->prepare_for_backward(search ? roots
                                               : std::vector<at::Tensor>());
  if (state_->options.static_graph && !state_->graph_known) {
    state_->graph_known = true;
    DelayExchange(*state_->reducer, roots);
  }
}

void DistributedModel::AfterBackward() {
  if (state_ == nullptr || !state_->sync) return;
  try {
    state_->reducer->check_finalized();
  } catch (const c10::Error&) {
    TORCH_CHECK_VALUE(false, state_->MissingGradients());
  }
  state_->group().under_way = false;
}

void DistributedModel::ZeroGrad() {
  for (const at::Tensor& parameter : module_->parameters()) {
    parameter.mutable_grad().reset();
  }
}

void DistributedModel::BroadcastBuffers() {
  if (state_ == nullptr) return;
  BroadcastFromFirst(state_->group(), Buffers(*module_));
}

absl::StatusOr<std::unique_ptr<DistributedModel>> WrapModel(
    torch::nn::Module& module, const Context& context,
    const DdpOptions& options) {
  std::unique_ptr<DistributedModel> model;
  const absl::Status status = CatchCollective(context, [&] {
    model = std::make_unique<DistributedModel>(module, context, options);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return model;
}

}  // namespace mir::distributed
