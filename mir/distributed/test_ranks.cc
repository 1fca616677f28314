#include "mir/distributed/test_ranks.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <exception>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "mir/distributed/group.h"

namespace mir::distributed {
namespace {

// LibTorch's flight recorder, one for the process, is filled by all groups
// without a lock.
const bool kWithoutRecorder = setenv("TORCH_FR_BUFFER_SIZE", "0", 1) == 0;

// A socket that listens on a free port, which children inherit.
std::pair<int, int> ListeningSocket() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(fd, generic, length), 0);
  EXPECT_EQ(listen(fd, 64), 0);
  EXPECT_EQ(getsockname(fd, generic, &length), 0);
  return {fd, ntohs(address.sin_port)};
}

}  // namespace

void RunThreadRanks(int world_size,
                    const std::function<void(Context context)>& body,
                    absl::Duration collective_timeout) {
  EXPECT_TRUE(kWithoutRecorder);
  const c10::intrusive_ptr<c10d::Store> store =
      c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([=] {
      InitOptions options;
      options.world.emplace();
      options.world->rank = options.world->local_rank = rank;
      options.world->size = options.world->local_size = world_size;
      options.device = DeviceKind::kCpu;
      options.collective_timeout = collective_timeout;
      absl::StatusOr<Context> context = InitWithStore(store, options);
      ASSERT_TRUE(context.ok()) << context.status();
      try {
        body(*std::move(context));
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << " threw: " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<mir::testing::ProcessResult> RunProcessRanks(
    int world_size, const std::function<std::string(Context context)>& body,
    absl::Duration collective_timeout) {
  std::pair<int, int> fd_and_port = {-1, 0};
  if (!mir::testing::IsChildProcess()) fd_and_port = ListeningSocket();
  const auto [fd, port] = fd_and_port;
  mir::testing::ProcessesOptions options;
  options.count = world_size;
  options.environment = [&, fd = fd, port = port](int rank) {
    std::map<std::string, std::string> variables = {
        {"RANK", absl::StrCat(rank)},
        {"LOCAL_RANK", absl::StrCat(rank)},
        {"WORLD_SIZE", absl::StrCat(world_size)},
        {"MASTER_ADDR", "127.0.0.1"},
        {"MASTER_PORT", absl::StrCat(port)}};
    if (rank == 0) variables["MIR_STORE_FD"] = absl::StrCat(fd);
    return variables;
  };
  auto results = RunProcesses(options, [&](int) -> std::string {
    InitOptions init;
    init.device = DeviceKind::kCpu;
    init.init_timeout = absl::Seconds(60);
    init.collective_timeout = collective_timeout;
    absl::StatusOr<Context> context = InitDistributed(init);
    EXPECT_TRUE(context.ok()) << context.status();
    return context.ok() ? body(*std::move(context)) : "";
  });
  close(fd);
  return results;
}

}  // namespace mir::distributed
