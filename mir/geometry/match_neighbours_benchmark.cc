#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <benchmark/benchmark.h>

#include "mir/geometry/match_neighbours.h"

namespace mir::geometry {
namespace {

// Eight channels, as VFA matches at full resolution; forward, or with the
// gradient to both. By the kernel (0) or by LibTorch's operators (1).
void BM_MatchNeighbours(benchmark::State& state) {
  const int64_t side = state.range(0);
  const bool backward = state.range(1) != 0;
  const auto match =
      state.range(2) == 0 ? MatchNeighbours : MatchNeighboursByOperators;
  const at::Tensor queries = at::randn({1, 8, side, side, side});
  const at::Tensor keys = at::randn({1, 8, side + 2, side + 2, side + 2});
  queries.requires_grad_(backward);
  keys.requires_grad_(backward);
  const at::Tensor cotangent = at::ones({1, 3, side, side, side});
  for (auto _ : state) {
    const at::Tensor found = match(queries, keys);
    benchmark::DoNotOptimize(found);
    if (backward) {
      found.backward(cotangent);
      queries.mutable_grad().reset();
      keys.mutable_grad().reset();
    }
  }
  state.SetItemsProcessed(state.iterations() * side * side * side);  // Voxels.
}

BENCHMARK(BM_MatchNeighbours)
    ->ArgNames({"side", "backward", "operators"})
    ->ArgsProduct({{16, 96}, {0, 1}, {0, 1}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace mir::geometry
