#include "mir/models/swin/windows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/roll.h>

#include <vector>

namespace mir::models {
namespace {

bool IsZero(const Size3& sizes) { return sizes == Size3{0, 0, 0}; }

int64_t Product(const Size3& sizes) { return sizes[0] * sizes[1] * sizes[2]; }

}  // namespace

Size3 WholeWindows(const at::Tensor& features, const Size3& window) {
  Size3 whole;
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t size = features.size(1 + axis);
    whole[axis] = (size + window[axis] - 1) / window[axis] * window[axis];
  }
  return whole;
}

at::Tensor PadAndShift(const at::Tensor& features, const Size3& window,
                       const Size3& shift) {
  const Size3 whole = WholeWindows(features, window);
  at::Tensor x = features;
  const int64_t d = whole[0] - x.size(1), h = whole[1] - x.size(2),
                w = whole[2] - x.size(3);
  if (d != 0 || h != 0 || w != 0) {
    x = at::constant_pad_nd(x, {0, 0, 0, w, 0, h, 0, d});
  }
  if (!IsZero(shift)) {
    x = at::roll(x, {-shift[0], -shift[1], -shift[2]}, {1, 2, 3});
  }
  return x;
}

at::Tensor CutIntoWindows(const at::Tensor& features, const Size3& window) {
  const at::Tensor& x = features;
  return x
      .reshape({x.size(0), x.size(1) / window[0], window[0],
                x.size(2) / window[1], window[1], x.size(3) / window[2],
                window[2], x.size(4)})
      .permute({0, 1, 3, 5, 2, 4, 6, 7})
      .reshape({-1, Product(window), x.size(4)});
}

at::Tensor JoinWindows(const at::Tensor& windows, const Size3& sizes,
                       const Size3& window, const Size3& shift) {
  Size3 count;
  for (int axis = 0; axis < 3; ++axis) {
    count[axis] = (sizes[axis] + window[axis] - 1) / window[axis];
  }
  const int64_t channels = windows.size(2);
  at::Tensor x = windows
                     .reshape({-1, count[0], count[1], count[2], window[0],
                               window[1], window[2], channels})
                     .permute({0, 1, 4, 2, 5, 3, 6, 7})
                     .reshape({-1, count[0] * window[0], count[1] * window[1],
                               count[2] * window[2], channels});
  if (!IsZero(shift)) {
    x = at::roll(x, {shift[0], shift[1], shift[2]}, {1, 2, 3});
  }
  for (int axis = 0; axis < 3; ++axis) {
    if (x.size(1 + axis) != sizes[axis]) {
      x = x.narrow(1 + axis, 0, sizes[axis]);
    }
  }
  return x.contiguous();
}

at::Tensor ShiftMask(const Size3& whole, const Size3& window,
                     const Size3& shift, at::Device device) {
  // Along an axis: before the last window, in it, and what the roll brought.
  at::Tensor region = at::full({1, 1, 1, 1, 1}, 0, at::kLong);
  for (int axis = 0; axis < 3; ++axis) {
    const at::Tensor position = at::arange(whole[axis]);
    at::Tensor part = (position >= whole[axis] - window[axis]).to(at::kLong) +
                      (position >= whole[axis] - shift[axis]).to(at::kLong);
    std::vector<int64_t> shape(5, 1);
    shape[1 + axis] = whole[axis];
    region = region * 3 + part.view(shape);
  }
  const at::Tensor regions = CutIntoWindows(region, window).squeeze(2);
  return ((regions.unsqueeze(1) != regions.unsqueeze(2)).to(at::kFloat) * -100)
      .to(device);
}

at::Tensor RelativePositionIndex(const Size3& window) {
  at::Tensor index = at::full({1, 1}, 0, at::kLong);
  for (int axis = 0; axis < 3; ++axis) {
    std::vector<int64_t> shape(3, 1);
    shape[axis] = window[axis];
    const at::Tensor position = at::arange(window[axis])
                                    .view(shape)
                                    .expand({window[0], window[1], window[2]})
                                    .reshape({-1});
    index = index * (2 * window[axis] - 1) + position.unsqueeze(1) -
            position.unsqueeze(0) + (window[axis] - 1);
  }
  return index;
}

int64_t RelativePositions(const Size3& window) {
  return (2 * window[0] - 1) * (2 * window[1] - 1) * (2 * window[2] - 1);
}

}  // namespace mir::models
