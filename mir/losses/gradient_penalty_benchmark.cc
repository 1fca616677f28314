#include <ATen/core/Tensor.h>
#include <ATen/ops/rand.h>
#include <benchmark/benchmark.h>

#include "mir/losses/gradient_penalty.h"

namespace mir::losses {
namespace {

// side 0 stands for 160 x 192 x 224, the size of a brain at 1 mm.
at::Tensor Field(int64_t side) {
  if (side == 0) return at::rand({1, 3, 160, 192, 224}).requires_grad_();
  return at::rand({1, 3, side, side, side}).requires_grad_();
}

// Value and gradient, as in training. The gradient's memory is fresh in every
// iteration.
void BM_GradientPenalty(benchmark::State& state) {
  const at::Tensor field = Field(state.range(0));
  GradientPenaltyOptions options;
  options.norm = state.range(1) == 1 ? GradientNorm::kL1 : GradientNorm::kL2;
  const GradientPenalty penalty(options);
  for (auto _ : state) {
    penalty(field).backward();
    field.mutable_grad() = at::Tensor();
  }
  state.SetItemsProcessed(state.iterations() * field.numel() / 3);  // Voxels.
}

BENCHMARK(BM_GradientPenalty)
    ->ArgNames({"side", "norm"})
    ->ArgsProduct({{16, 64, 0}, {1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// The same by LibTorch's operators.
void BM_GradientPenaltyByOperators(benchmark::State& state) {
  const at::Tensor field = Field(state.range(0));
  for (auto _ : state) {
    GradientPenaltyByOperators(field, {}).backward();
    field.mutable_grad() = at::Tensor();
  }
  state.SetItemsProcessed(state.iterations() * field.numel() / 3);  // Voxels.
}

BENCHMARK(BM_GradientPenaltyByOperators)
    ->ArgNames({"side"})
    ->ArgsProduct({{16, 64, 0}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace mir::losses
