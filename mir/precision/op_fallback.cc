#include "mir/precision/op_fallback.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/fft_rfft.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/replication_pad3d.h>
#include <ATen/ops/upsample_nearest3d.h>
#include <ATen/ops/upsample_trilinear3d.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <map>
#include <mutex>
#include <tuple>

#include "mir/precision/autocast.h"

namespace mir::precision {
namespace {

// An axis that is no power of two: cuFFT takes float16 of no others.
constexpr int64_t kSide = 6;

at::Tensor Call(Op op, const at::Tensor& x) {
  switch (op) {
    case Op::kAveragePool2d:
      return at::avg_pool2d(x.select(2, 0), {2, 2}, {2, 2});
    case Op::kAveragePool3d:
      return at::avg_pool3d(x, {2, 2, 2}, {2, 2, 2});
    case Op::kUpsampleNearest3d:
      return at::upsample_nearest3d(x, {2 * kSide, 2 * kSide, 2 * kSide});
    case Op::kUpsampleTrilinear3d:
      return at::upsample_trilinear3d(x, {2 * kSide, 2 * kSide, 2 * kSide},
                                      /*align_corners=*/false);
    case Op::kReplicationPad3d:
      return at::replication_pad3d(x, {1, 1, 1, 1, 1, 1});
    case Op::kDepthwiseConvolution3d:
      return at::conv3d(x, at::ones({x.size(1), 1, 3, 3, 3}, x.options()),
                        /*bias=*/{}, /*stride=*/1, /*padding=*/1,
                        /*dilation=*/1, /*groups=*/x.size(1));
    case Op::kFourierTransform:
      return at::fft_rfft(x).abs();
  }
  TORCH_INTERNAL_ASSERT(false);
}

bool Runs(Op op, const c10::Device& device, c10::ScalarType dtype) {
  // As in a training step, whatever this is called from.
  const c10::InferenceMode no_inference_mode(false);
  const at::AutoGradMode with_gradients(true);
  const NoAutocast no_autocast;
  try {
    const at::Tensor x = at::ones({1, 2, kSide, kSide, kSide},
                                  at::TensorOptions(dtype).device(device))
                             .requires_grad_();
    Call(op, x).sum().backward();
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

}  // namespace

bool HasKernel(Op op, const c10::Device& device, c10::ScalarType dtype) {
  using Key = std::tuple<Op, c10::DeviceType, c10::ScalarType>;
  static std::mutex& mutex = *new std::mutex;
  static auto& known = *new std::map<Key, bool>;
  const Key key(op, device.type(), dtype);
  {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = known.find(key);
    if (found != known.end()) return found->second;
  }
  const bool runs = Runs(op, device, dtype);
  const std::lock_guard<std::mutex> lock(mutex);
  known[key] = runs;
  return runs;
}

}  // namespace mir::precision
