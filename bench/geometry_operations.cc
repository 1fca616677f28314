#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <benchmark/benchmark.h>

#include "bench/operation.h"
#include "mir/geometry/jacobian.h"
#include "mir/geometry/vec_int.h"
#include "mir/geometry/warp.h"

namespace mir::bench {
namespace {

constexpr geometry::WarpOptions kMir = {
    geometry::WarpConvention::kMirCompatible};
constexpr int kSteps = 7;

Size Half(const Size& size) { return {size[0] / 2, size[1] / 2, size[2] / 2}; }

int64_t Bytes(const at::Tensor& tensor) { return tensor.nbytes(); }

Operation WarpForward(const Size& size) {
  const at::Tensor image = SmoothNoise(size, 1);
  const at::Tensor flow = SmoothField(size);
  return {[=] {
            const at::NoGradGuard no_grad;
            benchmark::DoNotOptimize(geometry::Warp(image, flow, kMir));
          },
          2 * Bytes(image) + Bytes(flow)};
}

// The gradient to the displacement.
Operation WarpAndGradient(const Size& size) {
  const at::Tensor image = SmoothNoise(size, 1);
  const at::Tensor flow = SmoothField(size);
  return {[=] {
            RunWithGradient(
                [&](const at::Tensor& leaf) {
                  return geometry::Warp(image, leaf, kMir);
                },
                flow);
          },
          2 * (2 * Bytes(image) + Bytes(flow)) + Bytes(flow)};
}

// A velocity at half the size, 7 steps.
Operation VecIntForward(const Size& size) {
  const at::Tensor velocity = SmoothField(Half(size));
  return {[=] {
            const at::NoGradGuard no_grad;
            benchmark::DoNotOptimize(
                geometry::VecInt(velocity, kSteps, kMir.convention));
          },
          2 * Bytes(velocity)};
}

template <geometry::VecIntMemory kMemory>
Operation VecIntAndGradient(const Size& size) {
  const at::Tensor velocity = SmoothField(Half(size));
  return {[=] {
            RunWithGradient(
                [](const at::Tensor& leaf) {
                  return geometry::VecInt(leaf, kSteps, kMir.convention,
                                          kMemory);
                },
                velocity);
          },
          4 * Bytes(velocity)};
}

Operation JacobianForward(const Size& size) {
  const at::Tensor flow = SmoothField(size);
  return {[=] {
            const at::NoGradGuard no_grad;
            benchmark::DoNotOptimize(geometry::JacobianDeterminant(flow));
          },
          Bytes(flow) + Bytes(flow) / 3};
}

Operation JacobianAndGradient(const Size& size) {
  const at::Tensor flow = SmoothField(size);
  return {[=] { RunWithGradient(geometry::JacobianDeterminant, flow); },
          3 * Bytes(flow) + 2 * (Bytes(flow) / 3)};
}

[[maybe_unused]] const int registered[] = {
    Register("warp_trilinear_fwd", WarpForward),
    Register("warp_trilinear_fwd_bwd", WarpAndGradient),
    Register("vecint7_half_fwd", VecIntForward),
    Register("vecint7_half_fwd_bwd",
             VecIntAndGradient<geometry::VecIntMemory::kKeepFields>),
    Register("vecint7_half_fwd_bwd_low_memory",
             VecIntAndGradient<geometry::VecIntMemory::kRecompute>),
    Register("jacobian_fwd", JacobianForward),
    Register("jacobian_fwd_bwd", JacobianAndGradient),
};

}  // namespace
}  // namespace mir::bench
