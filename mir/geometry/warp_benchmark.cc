#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <benchmark/benchmark.h>
#include <c10/core/InferenceMode.h>

#include "mir/geometry/warp.h"

namespace mir::geometry {
namespace {

// Smooth fields move neighbours alike; this one, random by up to 2 voxels, is
// the harder case for the caches.
at::Tensor Field(int64_t side) {
  return at::rand({1, 3, side, side, side}).mul_(4).sub_(2);
}

// Each call gets fresh memory for its result, as in use.
void BM_Warp(benchmark::State& state) {
  const c10::InferenceMode no_autograd;
  const int64_t side = state.range(0);
  const auto dtype = static_cast<at::ScalarType>(state.range(1));
  const at::Tensor image = at::rand({1, 1, side, side, side}).to(dtype);
  const at::Tensor shift = Field(side);
  for (auto _ : state) {
    benchmark::DoNotOptimize(Warp(image, shift));
  }
  state.SetItemsProcessed(state.iterations() * image.numel());  // Voxels.
  state.SetLabel(c10::toString(dtype));
}

BENCHMARK(BM_Warp)
    ->ArgNames({"side", "dtype"})
    ->ArgsProduct({{16, 64, 192},
                   {int64_t(at::kFloat), int64_t(at::kBFloat16)}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// Forward and backward, to the displacement alone (0) or the image too (1).
void BM_WarpAndGradient(benchmark::State& state) {
  const int64_t side = state.range(0);
  const at::Tensor image = at::rand({1, 1, side, side, side});
  const at::Tensor shift = Field(side).requires_grad_();
  image.requires_grad_(state.range(1) != 0);
  const at::Tensor cotangent = at::ones_like(image);
  for (auto _ : state) {
    Warp(image, shift).backward(cotangent);
    shift.mutable_grad().reset();
    image.mutable_grad().reset();
  }
  state.SetItemsProcessed(state.iterations() * image.numel());  // Voxels.
}

BENCHMARK(BM_WarpAndGradient)
    ->ArgNames({"side", "to_image"})
    ->ArgsProduct({{16, 64, 192}, {0, 1}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

void BM_WarpLabels(benchmark::State& state) {
  const int64_t side = state.range(0);
  const at::Tensor labels =
      at::rand({1, 1, side, side, side}).mul_(100).to(at::kInt);
  const at::Tensor shift = Field(side);
  for (auto _ : state) {
    benchmark::DoNotOptimize(WarpLabels(labels, shift));
  }
  state.SetItemsProcessed(state.iterations() * labels.numel());  // Voxels.
}

BENCHMARK(BM_WarpLabels)
    ->ArgName("side")
    ->Arg(16)
    ->Arg(64)
    ->Arg(192)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace mir::geometry
