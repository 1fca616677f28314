#include "mir/distributed/thread_ranks.h"

#include <gtest/gtest.h>

#include <exception>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>
#include <vector>

#include "mir/distributed/group.h"

namespace mir::distributed {

void RunThreadRanks(int world_size,
                    const std::function<void(Context context)>& body,
                    absl::Duration collective_timeout) {
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

}  // namespace mir::distributed
