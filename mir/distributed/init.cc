#include "mir/distributed/init.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Logging.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "mir/base/exit_status.h"
#include "mir/base/status_macros.h"
#include "mir/distributed/address.h"
#include "mir/distributed/cuda_index.h"
#include "mir/distributed/group.h"
#include "mir/distributed/nccl.h"
#include "mir/distributed/rendezvous.h"
#include "mir/launch/env.h"
#include "mir/launch/exit_codes.h"

namespace mir::distributed {
namespace {

using StorePointer = c10::intrusive_ptr<c10d::Store>;

// c10d takes 0 for no timeout at all.
std::chrono::milliseconds Milliseconds(absl::Duration duration) {
  return std::max(absl::ToChronoMilliseconds(duration),
                  std::chrono::milliseconds(1));
}

std::string FirstLine(const std::exception& error) {
  const std::string what = error.what();
  return what.substr(0, what.find('\n'));
}

absl::Status Unavailable(const std::exception& error) {
  return absl::UnavailableError(
      absl::StrCat("a peer or the store went away: ", FirstLine(error)));
}

// ---- Devices ----

absl::StatusOr<at::Device> ChooseDevice(DeviceKind kind,
                                        const launch::World& world) {
  if (kind == DeviceKind::kCpu) return at::Device(at::kCPU);
  const int count = at::detail::getCUDAHooks().deviceCount();
  if (count == 0 || !HasNccl()) {
    if (kind == DeviceKind::kAuto) return at::Device(at::kCPU);
    return absl::FailedPreconditionError(
        HasNccl() ? "a CUDA device was asked for, but none is visible (look at "
                    "nvidia-smi and CUDA_VISIBLE_DEVICES); use the CPU instead"
                  : "a CUDA device was asked for, but this program was built "
                    "without CUDA; build it with --config=cuda, or use the "
                    "CPU");
  }
  MIR_ASSIGN_OR_RETURN(const int index, CudaIndex(world, count));
  const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(index));
  c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(device);
  return device;
}

// ---- The store ----

// While ranks join, c10d's own log is off: it prints stack traces where the
// status says in one line what is wrong.
class QuietLog {
 public:
  QuietLog() : level_(FLAGS_caffe2_log_level) {
    if (!launch::Has(launch::CurrentEnv(), "TORCH_CPP_LOG_LEVEL")) {
      FLAGS_caffe2_log_level = c10::GLOG_FATAL;
    }
  }
  ~QuietLog() { FLAGS_caffe2_log_level = level_; }

 private:
  const int level_;
};

absl::StatusOr<StorePointer> ServeStore(const launch::World& world,
                                        c10d::TCPStoreOptions options) {
  MIR_ASSIGN_OR_RETURN(const std::string address, AddressOf(world.master_addr));
  options.isServer = true;
  if (world.store_fd >= 0) options.masterListenFd = world.store_fd;
  try {
    return StorePointer(c10::make_intrusive<c10d::TCPStore>(address, options));
  } catch (const std::exception& error) {
    if (absl::StrContains(error.what(), "EADDRINUSE")) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank 0 cannot listen on port ", world.master_port,
                       ": another program does; set another MASTER_PORT"));
    }
    return absl::FailedPreconditionError(
        absl::StrCat("rank 0 cannot serve the store at ", world.master_addr,
                     ":", world.master_port, ": ", FirstLine(error)));
  }
}

absl::StatusOr<StorePointer> ReachStore(const launch::World& world,
                                        const c10d::TCPStoreOptions& options,
                                        absl::Duration timeout) {
  absl::StatusOr<std::string> address =
      WaitForListener(world.master_addr, world.master_port, timeout);
  if (absl::IsDeadlineExceeded(address.status())) {
    return absl::DeadlineExceededError(absl::StrCat(
        address.status().message(), " (MASTER_ADDR:MASTER_PORT): is ",
        world.agent_store ? "the launcher" : "rank 0",
        " running, and the port open?"));
  }
  MIR_RETURN_IF_ERROR(address.status());
  try {
    return StorePointer(c10::make_intrusive<c10d::TCPStore>(*address, options));
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(absl::StrCat(
        "what listens at ", world.master_addr, ":", world.master_port,
        " (MASTER_ADDR:MASTER_PORT) is no store: ", FirstLine(error)));
  }
}

absl::StatusOr<StorePointer> MakeStore(const launch::World& world,
                                       absl::Duration timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(world.master_port);
  options.numWorkers = world.size;
  options.waitWorkers = false;  // Meet() waits, and names those missing.
  options.timeout = Milliseconds(timeout);
  return world.rank == 0 && !world.agent_store
             ? ServeStore(world, options)
             : ReachStore(world, options, timeout);
}

class StoreKeyValues : public KeyValues {
 public:
  explicit StoreKeyValues(StorePointer store) : store_(std::move(store)) {}

  absl::Status Set(const std::string& key, const std::string& value) override {
    return Try([&] { store_->set(key, value); });
  }
  absl::StatusOr<absl::optional<std::string>> Find(
      const std::string& key) override {
    absl::optional<std::string> value;
    MIR_RETURN_IF_ERROR(Try([&] {
      if (store_->check({key})) value = store_->get_to_str(key);
    }));
    return value;
  }
  absl::StatusOr<int64_t> Add(const std::string& key, int64_t amount) override {
    int64_t sum = 0;
    MIR_RETURN_IF_ERROR(Try([&] { sum = store_->add(key, amount); }));
    return sum;
  }

 private:
  static absl::Status Try(const std::function<void()>& call) {
    try {
      call();
      return absl::OkStatus();
    } catch (const std::exception& error) {
      return Unavailable(error);
    }
  }

  StorePointer store_;
};

// ---- The group ----

using Listeners = std::vector<std::shared_ptr<::gloo::transport::Device>>;

absl::StatusOr<Listeners> Listen(absl::string_view what,
                                 const std::function<Listeners()>& make) {
  try {
    return make();
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot listen for the other ranks on ", what, ": ", FirstLine(error)));
  }
}

// On the interfaces that the user names; empty if none are named.
absl::StatusOr<Listeners> ListenWhereAsked() {
  const std::string interfaces =
      launch::Get(launch::CurrentEnv(), "GLOO_SOCKET_IFNAME");
  if (interfaces.empty()) return Listeners();
  return Listen("GLOO_SOCKET_IFNAME=" + interfaces, [] {
    return c10d::ProcessGroupGloo::Options::create_default()->devices;
  });
}

// LibTorch alone binds the address of the machine's own name, which may not
// resolve, or lead elsewhere than to the other machines.
absl::StatusOr<Listeners> ListenForPeers(const launch::World& world,
                                         bool one_machine) {
  MIR_ASSIGN_OR_RETURN(const std::string address,
                       ListenAddress(one_machine, world.master_addr));
  return Listen(address, [&address] {
    return Listeners{c10d::ProcessGroupGloo::createDeviceForHostname(address)};
  });
}

absl::StatusOr<std::shared_ptr<Group>> Connect(
    const StorePointer& store, const launch::World& world, at::Device device,
    Listeners listeners, absl::Duration timeout,
    absl::Duration collective_timeout) {
  using Type = c10d::ProcessGroup::BackendType;
  auto group = std::make_shared<Group>();
  group->store = store;
  try {
    group->processes =
        c10::make_intrusive<c10d::ProcessGroup>(store, world.rank, world.size);
    c10d::ProcessGroup& processes = *group->processes;
    auto options =
        c10d::ProcessGroupGloo::Options::create(Milliseconds(timeout));
    options->devices = std::move(listeners);
    processes.setDefaultBackend(Type::GLOO);
    processes.setBackend(
        at::kCPU, Type::GLOO,
        c10::intrusive_ptr<c10d::Backend>(
            c10::make_intrusive<c10d::ProcessGroupGloo>(
                c10::make_intrusive<c10d::PrefixStore>("gloo", store),
                world.rank, world.size, options)));
    if (device.is_cuda()) {
      processes.setBoundDeviceId(device);
      processes.setBackend(
          at::kCUDA, Type::NCCL,
          MakeNccl(c10::make_intrusive<c10d::PrefixStore>("nccl", store),
                   world.rank, world.size, device, Milliseconds(timeout)));
    }
    processes.setGroupName("mir");
    processes.setTimeout(Milliseconds(collective_timeout));
  } catch (const std::exception& error) {
    return Unavailable(error);
  }
  return group;
}

absl::StatusOr<Context> Join(const InitOptions& options, at::Device device,
                             Listeners listeners, const StorePointer& store,
                             absl::Time deadline) {
  const launch::World& world = *options.world;
  const StorePointer attempt = c10::make_intrusive<c10d::PrefixStore>(
      absl::StrCat("mir", world.generation), store);
  StoreKeyValues key_values(attempt);
  MIR_ASSIGN_OR_RETURN(
      const Meeting meeting,
      Meet(key_values,
           {world.rank, world.size, options.fingerprint, MachineId()},
           deadline - absl::Now()));
  if (listeners.empty()) {
    MIR_ASSIGN_OR_RETURN(listeners, ListenForPeers(world, meeting.one_machine));
  }
  Context context{world, device, nullptr};
  MIR_ASSIGN_OR_RETURN(
      context.group,
      Connect(c10::make_intrusive<c10d::PrefixStore>(meeting.prefix, attempt),
              world, device, std::move(listeners), deadline - absl::Now(),
              options.collective_timeout.value_or(
                  absl::Seconds(world.collective_timeout_seconds))));
  return context;
}

// With a store of the launcher's choice, or `shared`.
absl::StatusOr<Context> Init(InitOptions options, StorePointer shared) {
  if (!options.world.has_value()) {
    MIR_ASSIGN_OR_RETURN(options.world,
                         launch::WorldFromEnv(launch::CurrentEnv()));
  }
  const launch::World& world = *options.world;
  MIR_ASSIGN_OR_RETURN(const at::Device device,
                       ChooseDevice(options.device, world));
  if (world.size == 1) return Context{world, device, nullptr};
  const absl::Duration timeout =
      options.init_timeout.value_or(absl::Seconds(world.init_timeout_seconds));
  const absl::Time deadline = absl::Now() + timeout;
  const QuietLog quiet;
  MIR_ASSIGN_OR_RETURN(const Listeners listeners, ListenWhereAsked());
  if (shared == nullptr) {
    MIR_ASSIGN_OR_RETURN(shared, MakeStore(world, timeout));
  }
  return Join(options, device, listeners, shared, deadline);
}

absl::StatusOr<Context> InitWithExitCode(const InitOptions& options,
                                         const StorePointer& shared) {
  absl::StatusOr<Context> context = Init(options, shared);
  if (context.ok()) return context;
  return WithExitCode(context.status(), absl::IsUnavailable(context.status())
                                            ? launch::kPeer
                                            : launch::kEnvironment);
}

}  // namespace

Group::~Group() {
  if (processes != nullptr && (peer_failed || under_way)) {
    (void)processes.release();
    (void)store.release();
  }
}

absl::StatusOr<Context> InitWithStore(const StorePointer& store,
                                      const InitOptions& options) {
  return InitWithExitCode(options, store);
}

absl::StatusOr<Context> InitDistributed(const InitOptions& options) {
  return InitWithExitCode(options, nullptr);
}

void Cleanup(Context& context) {
  if (context.group == nullptr) return;
  Group& group = *context.group;
  if (!group.peer_failed && !group.under_way) {
    try {
      group.processes->shutdown();
    } catch (const std::exception&) {
      group.peer_failed = true;
    }
  }
  context.group = nullptr;
}

}  // namespace mir::distributed
