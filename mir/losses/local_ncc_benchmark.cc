#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/rand.h>
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "mir/losses/local_ncc.h"

namespace mir::losses {
namespace {

// side 0 stands for 160 x 192 x 224, the size of a brain at 1 mm.
std::vector<int64_t> Sizes(int64_t side) {
  if (side == 0) return {1, 1, 160, 192, 224};
  return {1, 1, side, side, side};
}

void BM_LocalNccForward(benchmark::State& state) {
  const at::NoGradGuard no_grad;
  const at::Tensor fixed = at::rand(Sizes(state.range(0)));
  const at::Tensor moving = at::rand(Sizes(state.range(0)));
  LocalNccOptions options;
  options.window = state.range(1);
  const LocalNcc loss(options);
  for (auto _ : state) {
    benchmark::DoNotOptimize(loss(fixed, moving));
  }
  state.SetItemsProcessed(state.iterations() * fixed.numel());  // Voxels.
}

BENCHMARK(BM_LocalNccForward)
    ->ArgNames({"side", "window"})
    ->ArgsProduct({{16, 64, 0}, {9}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// Value and gradient to the moving image, as in training. The gradient's memory
// is fresh in every iteration.
void BM_LocalNccForwardBackward(benchmark::State& state) {
  const at::Tensor fixed = at::rand(Sizes(state.range(0)));
  const at::Tensor moving = at::rand(Sizes(state.range(0))).requires_grad_();
  LocalNccOptions options;
  options.window = state.range(1);
  const LocalNcc loss(options);
  for (auto _ : state) {
    loss(fixed, moving).backward();
    moving.mutable_grad() = at::Tensor();
  }
  state.SetItemsProcessed(state.iterations() * fixed.numel());  // Voxels.
}

BENCHMARK(BM_LocalNccForwardBackward)
    ->ArgNames({"side", "window"})
    ->ArgsProduct({{16, 64, 0}, {5, 9, 21}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace mir::losses
