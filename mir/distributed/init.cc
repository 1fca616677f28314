#include "mir/distributed/init.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/exception.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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

absl::Status Unavailable(const std::exception& error) {
  return absl::UnavailableError(
      absl::StrCat("a peer or the store went away: ", error.what()));
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

absl::StatusOr<StorePointer> MakeStore(const launch::World& world,
                                       absl::Duration timeout) {
  const bool serves = !world.agent_store && world.rank == 0;
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(world.master_port);
  options.isServer = serves;
  options.numWorkers = world.size;
  options.waitWorkers = false;  // Meet() waits, and names those missing.
  options.timeout = Milliseconds(timeout);
  if (serves && world.store_fd >= 0) options.masterListenFd = world.store_fd;
  const std::string place =
      absl::StrCat(world.master_addr, ":", world.master_port);
  try {
    return StorePointer(
        c10::make_intrusive<c10d::TCPStore>(world.master_addr, options));
  } catch (const c10d::TimeoutError&) {
    return absl::DeadlineExceededError(absl::StrCat(
        "nobody answers at ", place, " (MASTER_ADDR:MASTER_PORT) after ",
        absl::FormatDuration(timeout), ": is ",
        world.agent_store ? "the launcher" : "rank 0",
        " running, and the port open?"));
  } catch (const std::exception& error) {
    if (serves && absl::StrContains(error.what(), "EADDRINUSE")) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank 0 cannot listen on port ", world.master_port,
                       ": another program does; set another MASTER_PORT"));
    }
    const std::string what = error.what();
    return absl::FailedPreconditionError(absl::StrCat(
        "no store at ", place,
        " (MASTER_ADDR:MASTER_PORT): ", what.substr(0, what.find('\n'))));
  }
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

// LibTorch alone binds the address of the machine's own name, which may not
// resolve, or lead elsewhere than to the other machines.
absl::Status ChooseAddress(const launch::World& world, bool one_machine,
                           c10d::ProcessGroupGloo::Options& options) {
  if (launch::Has(launch::CurrentEnv(), "GLOO_SOCKET_IFNAME")) {
    options.devices =
        c10d::ProcessGroupGloo::Options::create_default(options.timeout)
            ->devices;
    return absl::OkStatus();
  }
  MIR_ASSIGN_OR_RETURN(
      const std::string address,
      ListenAddress(one_machine, world.master_addr, world.master_port));
  options.devices = {c10d::ProcessGroupGloo::createDeviceForHostname(address)};
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Group>> Connect(
    const StorePointer& store, const launch::World& world, bool one_machine,
    at::Device device, absl::Duration timeout,
    absl::Duration collective_timeout) {
  auto group = std::make_shared<Group>();
  group->store = store;
  try {
    auto options =
        c10d::ProcessGroupGloo::Options::create(Milliseconds(timeout));
    MIR_RETURN_IF_ERROR(ChooseAddress(world, one_machine, *options));
    group->processes =
        c10::make_intrusive<c10d::ProcessGroup>(store, world.rank, world.size);
    c10d::ProcessGroup& processes = *group->processes;
    processes.setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
    processes.setBackend(
        at::kCPU, c10d::ProcessGroup::BackendType::GLOO,
        c10::intrusive_ptr<c10d::Backend>(
            c10::make_intrusive<c10d::ProcessGroupGloo>(
                c10::make_intrusive<c10d::PrefixStore>("gloo", store),
                world.rank, world.size, options)));
    if (device.is_cuda()) {
      processes.setBoundDeviceId(device);
      processes.setBackend(
          at::kCUDA, c10d::ProcessGroup::BackendType::NCCL,
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
                             const StorePointer& store, absl::Time deadline) {
  const launch::World& world = *options.world;
  const StorePointer attempt = c10::make_intrusive<c10d::PrefixStore>(
      absl::StrCat("mir", world.generation), store);
  StoreKeyValues key_values(attempt);
  MIR_ASSIGN_OR_RETURN(
      const Meeting meeting,
      Meet(key_values,
           {world.rank, world.size, options.fingerprint, MachineId()},
           deadline - absl::Now()));
  Context context{world, device, nullptr};
  MIR_ASSIGN_OR_RETURN(
      context.group,
      Connect(c10::make_intrusive<c10d::PrefixStore>(meeting.prefix, attempt),
              world, meeting.one_machine, device, deadline - absl::Now(),
              options.collective_timeout));
  return context;
}

absl::Duration InitTimeout(const InitOptions& options) {
  return options.init_timeout.value_or(
      absl::Seconds(options.world->init_timeout_seconds));
}

absl::Status WithInitExitCode(const absl::Status& status) {
  return WithExitCode(status, absl::IsUnavailable(status)
                                  ? launch::kPeer
                                  : launch::kEnvironment);
}

absl::StatusOr<Context> Init(InitOptions options) {
  if (!options.world.has_value()) {
    MIR_ASSIGN_OR_RETURN(options.world,
                         launch::WorldFromEnv(launch::CurrentEnv()));
  }
  MIR_ASSIGN_OR_RETURN(const at::Device device,
                       ChooseDevice(options.device, *options.world));
  if (options.world->size == 1) return Context{*options.world, device, nullptr};
  const absl::Duration timeout = InitTimeout(options);
  const absl::Time deadline = absl::Now() + timeout;
  MIR_ASSIGN_OR_RETURN(const StorePointer store,
                       MakeStore(*options.world, timeout));
  return Join(options, device, store, deadline);
}

absl::StatusOr<Context> InitWith(const StorePointer& store,
                                 const InitOptions& options) {
  MIR_ASSIGN_OR_RETURN(const at::Device device,
                       ChooseDevice(options.device, *options.world));
  return Join(options, device, store, absl::Now() + InitTimeout(options));
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
  absl::StatusOr<Context> context = InitWith(store, options);
  if (!context.ok()) return WithInitExitCode(context.status());
  return context;
}

absl::StatusOr<Context> InitDistributed(const InitOptions& options) {
  absl::StatusOr<Context> context = Init(options);
  if (!context.ok()) return WithInitExitCode(context.status());
  return context;
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
