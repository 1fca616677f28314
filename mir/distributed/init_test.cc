#include "mir/distributed/init.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "mir/base/exit_status.h"
#include "mir/distributed/collectives.h"
#include "mir/launch/exit_codes.h"
#include "mir/testing/multi_process.h"
#include "mir/testing/status_matchers.h"

namespace mir::distributed {
namespace {

using mir::testing::IsOk;
using mir::testing::IsOkAndHolds;
using mir::testing::RunProcesses;
using mir::testing::StatusIs;
using mir::testing::Succeeded;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// LibTorch's flight recorder, one for the process, is filled by all groups
// without a lock.
const bool kWithoutRecorder = setenv("TORCH_FR_BUFFER_SIZE", "0", 1) == 0;

// A port of this machine that stays ours: bound, listening or not.
class Port {
 public:
  explicit Port(bool listening) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(fd_, generic, length), 0);
    EXPECT_EQ(getsockname(fd_, generic, &length), 0);
    EXPECT_TRUE(!listening || listen(fd_, 16) == 0);
    number_ = ntohs(address.sin_port);
  }
  ~Port() {
    if (fd_ >= 0) close(fd_);
  }

  int number() const { return number_; }
  int fd() const { return fd_; }
  // The socket, for somebody who closes it.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
  int number_;
};

launch::World WorldOf(int rank, int size, int port) {
  launch::World world;
  world.rank = world.local_rank = rank;
  world.size = world.local_size = size;
  world.launcher = "torchrun";
  world.master_addr = "127.0.0.1";
  world.master_port = port;
  return world;
}

InitOptions OptionsOf(const launch::World& world) {
  InitOptions options;
  options.world = world;
  options.device = DeviceKind::kCpu;
  options.init_timeout = absl::Seconds(30);
  return options;
}

// Joins each world on a thread of its own; those that can then add their ranks.
std::vector<absl::StatusOr<double>> JoinAndSum(
    const std::vector<InitOptions>& ranks) {
  EXPECT_TRUE(kWithoutRecorder);
  std::vector<absl::StatusOr<double>> sums(ranks.size(),
                                           absl::UnknownError("did not end"));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      absl::StatusOr<Context> context = InitDistributed(ranks[i]);
      if (!context.ok()) {
        sums[i] = context.status();
        return;
      }
      sums[i] = AllReduceSum(*context, context->world.rank + 1.);
      Cleanup(*context);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return sums;
}

TEST(InitDistributedTest, ASingleProcessHasNoGroup) {
  InitOptions options = OptionsOf(launch::World());
  absl::StatusOr<Context> context = InitDistributed(options);
  ASSERT_THAT(context, IsOk());
  EXPECT_EQ(context->group, nullptr);
  EXPECT_EQ(context->device, at::Device(at::kCPU));
  Cleanup(*context);
  Cleanup(*context);
}

TEST(InitDistributedTest, RankZeroServesTheStoreOnTheSocketItWasGiven) {
  Port port(/*listening=*/true);
  InitOptions first = OptionsOf(WorldOf(0, 2, port.number()));
  first.world->store_fd = port.Release();
  EXPECT_THAT(JoinAndSum({first, OptionsOf(WorldOf(1, 2, port.number()))}),
              Each(IsOkAndHolds(3)));
}

TEST(InitDistributedTest, RankZeroBindsThePortItself) {
  int number = 0;
  {
    const Port port(/*listening=*/false);
    number = port.number();
  }
  EXPECT_THAT(JoinAndSum({OptionsOf(WorldOf(0, 3, number)),
                          OptionsOf(WorldOf(1, 3, number)),
                          OptionsOf(WorldOf(2, 3, number))}),
              Each(IsOkAndHolds(6)));
}

TEST(InitDistributedTest, AnAgentsStoreServesOneAttemptAfterAnother) {
  c10d::TCPStoreOptions server;
  server.port = 0;
  server.isServer = true;
  server.waitWorkers = false;
  const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", server);
  std::vector<InitOptions> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(OptionsOf(WorldOf(rank, 2, store->getPort())));
    ranks.back().world->agent_store = true;
  }
  for (int attempt = 0; attempt < 3; ++attempt) {
    EXPECT_THAT(JoinAndSum(ranks), Each(IsOkAndHolds(3))) << attempt;
  }
}

TEST(InitDistributedTest, ANamedInterfaceIsUsed) {
  setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  Port port(/*listening=*/true);
  InitOptions first = OptionsOf(WorldOf(0, 2, port.number()));
  first.world->store_fd = port.Release();
  EXPECT_THAT(JoinAndSum({first, OptionsOf(WorldOf(1, 2, port.number()))}),
              Each(IsOkAndHolds(3)));
  setenv("GLOO_SOCKET_IFNAME", "no-such-interface", 1);
  Port other(/*listening=*/true);
  first = OptionsOf(WorldOf(0, 2, other.number()));
  first.world->store_fd = other.Release();
  InitOptions second = OptionsOf(WorldOf(1, 2, other.number()));
  EXPECT_THAT(
      JoinAndSum({first, second}),
      Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                    HasSubstr("on GLOO_SOCKET_IFNAME=no-such-interface"))));
  unsetenv("GLOO_SOCKET_IFNAME");
}

TEST(InitDistributedTest, APortThatIsTakenIsNamed) {
  const Port port(/*listening=*/true);
  const absl::Status status =
      InitDistributed(OptionsOf(WorldOf(0, 2, port.number()))).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                               AllOf(HasSubstr("rank 0 cannot listen on port "),
                                     HasSubstr(absl::StrCat(port.number())),
                                     HasSubstr("MASTER_PORT"))));
  EXPECT_EQ(ExitCodeOf(status), launch::kEnvironment);
}

TEST(InitDistributedTest, AStoreThatNobodyServesIsNamed) {
  const Port port(/*listening=*/false);
  InitOptions options = OptionsOf(WorldOf(1, 2, port.number()));
  options.init_timeout = absl::Milliseconds(300);
  const absl::Time start = absl::Now();
  EXPECT_THAT(
      InitDistributed(options).status(),
      StatusIs(
          absl::StatusCode::kDeadlineExceeded,
          AllOf(HasSubstr(absl::StrCat("127.0.0.1:", port.number())),
                HasSubstr("after 300ms"), HasSubstr("is rank 0 running"))));
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(300));
  options.world->agent_store = true;
  EXPECT_THAT(InitDistributed(options).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("is the launcher running")));
}

TEST(InitDistributedTest, AHostThatNobodyKnowsIsNamed) {
  for (const int rank : {0, 1}) {
    InitOptions options = OptionsOf(WorldOf(rank, 2, 1234));
    options.world->master_addr = "no-such-host.invalid";
    options.init_timeout = absl::Milliseconds(100);
    const absl::Status status = InitDistributed(options).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 HasSubstr("'no-such-host.invalid'")));
    EXPECT_EQ(ExitCodeOf(status), launch::kEnvironment);
  }
}

TEST(InitDistributedTest, AListenerThatIsNoStoreIsNamed) {
  const Port port(/*listening=*/true);
  std::thread closes([&port] {
    // The probe, the store's client and what it tries again.
    for (int i = 0; i < 2; ++i) close(accept(port.fd(), nullptr, nullptr));
    shutdown(port.fd(), SHUT_RDWR);
  });
  InitOptions options = OptionsOf(WorldOf(1, 2, port.number()));
  options.init_timeout = absl::Seconds(1);
  EXPECT_THAT(InitDistributed(options).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("is no store")));
  closes.join();
}

TEST(InitDistributedTest, MissingRanksAreNamed) {
  Port port(/*listening=*/true);
  InitOptions first = OptionsOf(WorldOf(0, 3, port.number()));
  first.world->store_fd = port.Release();
  InitOptions second = OptionsOf(WorldOf(1, 3, port.number()));
  first.init_timeout = second.init_timeout = absl::Seconds(2);
  const auto results = JoinAndSum({first, second});
  EXPECT_THAT(results, Each(StatusIs(absl::StatusCode::kDeadlineExceeded,
                                     HasSubstr("rank 2 of 3 was not there"))));
  EXPECT_EQ(ExitCodeOf(results[0].status()), launch::kEnvironment);
}

TEST(InitDistributedTest, RanksThatDisagreeAreNamed) {
  Port port(/*listening=*/true);
  InitOptions first = OptionsOf(WorldOf(0, 2, port.number()));
  first.world->store_fd = port.Release();
  first.fingerprint = "--lr 1e-3";
  InitOptions second = OptionsOf(WorldOf(1, 2, port.number()));
  second.fingerprint = "--lr 1e-4";
  const auto results = JoinAndSum({first, second});
  EXPECT_THAT(results, Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                                     AllOf(HasSubstr("'--lr 1e-3'"),
                                           HasSubstr("'--lr 1e-4'")))));
  EXPECT_EQ(ExitCodeOf(results[0].status()), launch::kEnvironment);
}

TEST(InitDistributedTest, ACudaDeviceThatIsNotThereIsRefused) {
  if (at::detail::getCUDAHooks().deviceCount() > 0) {
    GTEST_SKIP() << "has a CUDA device";
  }
  InitOptions options = OptionsOf(launch::World());
  options.device = DeviceKind::kCuda;
  const absl::Status status = InitDistributed(options).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr("a CUDA device was asked for, but")));
  EXPECT_EQ(ExitCodeOf(status), launch::kEnvironment);
  options.device = DeviceKind::kAuto;
  ASSERT_THAT(InitDistributed(options), IsOk());
  EXPECT_EQ(InitDistributed(options)->device, at::Device(at::kCPU));
}

// ---- Real processes, with the environment alone ----

std::map<std::string, std::string> TorchrunEnvironment(int rank, int size,
                                                       int port) {
  return {{"RANK", absl::StrCat(rank)},
          {"LOCAL_RANK", absl::StrCat(rank)},
          {"WORLD_SIZE", absl::StrCat(size)},
          {"LOCAL_WORLD_SIZE", absl::StrCat(size)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", absl::StrCat(port)}};
}

std::string JoinAndSumHere(int rank) {
  InitOptions options;
  options.device = DeviceKind::kCpu;
  absl::StatusOr<Context> context = InitDistributed(options);
  EXPECT_THAT(context, IsOk());
  if (!context.ok()) return "";
  EXPECT_EQ(context->world.rank, rank);
  EXPECT_THAT(AllReduceSum(*context, rank + 1.), IsOkAndHolds(3));
  Cleanup(*context);
  return "joined";
}

TEST(InitProcessesTest, MeetOnTheSocketOfTheirParent) {
  Port port(/*listening=*/!mir::testing::IsChildProcess());
  const auto results = RunProcesses(
      {2,
       [&](int rank) {
         auto variables = TorchrunEnvironment(rank, 2, port.number());
         if (rank == 0) variables["MIR_STORE_FD"] = absl::StrCat(port.fd());
         return variables;
       }},
      JoinAndSumHere);
  EXPECT_THAT(results, Each(Succeeded()));
}

TEST(InitProcessesTest, MeetAtTorchrunsAgent) {
  c10d::TCPStoreOptions server;
  server.port = 0;
  server.isServer = true;
  server.waitWorkers = false;
  const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", server);
  const auto results = RunProcesses(
      {2,
       [&](int rank) {
         auto variables = TorchrunEnvironment(rank, 2, store->getPort());
         variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
         variables["TORCHELASTIC_RESTART_COUNT"] = "1";
         variables["TORCHELASTIC_MAX_RESTARTS"] = "3";
         variables["TORCHELASTIC_RUN_ID"] = "none";
         return variables;
       }},
      JoinAndSumHere);
  EXPECT_THAT(results, Each(Succeeded()));
}

TEST(InitProcessesTest, AnEnvironmentThatContradictsItselfIsRefused) {
  const auto results = RunProcesses(
      {1,
       [&](int) {
         return TorchrunEnvironment(/*rank=*/5, /*size=*/2, /*port=*/1234);
       }},
      [](int) {
        const absl::Status status = InitDistributed().status();
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                     HasSubstr("RANK")));
        EXPECT_EQ(ExitCodeOf(status), launch::kEnvironment);
        return std::string();
      });
  EXPECT_THAT(results, Each(Succeeded()));
}

}  // namespace
}  // namespace mir::distributed
