#include "mir/losses/box_sum.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/constant_pad_nd.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

namespace mir::losses {
namespace {

// Along one axis: sums of 2, 4, 8, ... neighbours, of which those that the
// binary digits of the box's width name are added up.
at::Tensor SumAlong(const at::Tensor& image, int64_t axis, int64_t radius) {
  const int64_t size = image.size(axis);
  const int64_t width = 2 * radius + 1;
  std::vector<int64_t> padding(2 * (image.dim() - axis), 0);
  padding[padding.size() - 2] = padding[padding.size() - 1] = radius;
  at::Tensor spans = at::constant_pad_nd(image, padding, 0);
  at::Tensor sum = spans.narrow(axis, 0, size);
  int64_t covered = 1;
  for (int64_t span = 2; span <= width; span *= 2) {
    const int64_t left = spans.size(axis) - span / 2;
    spans = spans.narrow(axis, 0, left) + spans.narrow(axis, span / 2, left);
    if ((width & span) != 0) {
      sum = sum + spans.narrow(axis, covered, size);
      covered += span;
    }
  }
  return sum;
}

// Along one axis, with weights.
at::Tensor WeighAlong(const at::Tensor& image, int64_t axis,
                      const std::vector<double>& taps) {
  const int64_t size = image.size(axis);
  const int64_t radius = taps.size() / 2;
  at::Tensor sum = image * taps[radius];
  // Taps beyond the volume meet zeros only.
  for (int64_t k = 1; k <= std::min(radius, size - 1); ++k) {
    const double tap = taps[radius + k];
    sum.narrow(axis, 0, size - k).add_(image.narrow(axis, k, size - k), tap);
    sum.narrow(axis, k, size - k).add_(image.narrow(axis, 0, size - k), tap);
  }
  return sum;
}

class WindowSumFunction : public torch::autograd::Function<WindowSumFunction> {
 public:
  using Taps = std::vector<std::vector<double>>;

  static at::Tensor forward(torch::autograd::AutogradContext* context,
                            const at::Tensor& image, const Taps& taps) {
    context->saved_data["taps"] = taps;
    at::Tensor sum = image;
    for (size_t axis = 0; axis < taps.size(); ++axis) {
      sum = WeighAlong(sum, 2 + axis, taps[axis]);
    }
    return sum;
  }

  // Symmetric, hence its own adjoint.
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      const torch::autograd::variable_list& gradients) {
    return {WindowSum(gradients[0], context->saved_data["taps"].to<Taps>()),
            at::Tensor()};
  }
};

class BoxSumFunction : public torch::autograd::Function<BoxSumFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context,
                            const at::Tensor& image,
                            const std::vector<int64_t>& radii) {
    context->saved_data["radii"] = radii;
    at::Tensor sum = image;
    for (size_t axis = 0; axis < radii.size(); ++axis) {
      if (radii[axis] > 0) sum = SumAlong(sum, 2 + axis, radii[axis]);
    }
    // An output that is the input would be taken for a view.
    return sum.is_same(image) ? sum.clone() : sum;
  }

  // The sum over a box is its own adjoint.
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      const torch::autograd::variable_list& gradients) {
    return {BoxSum(gradients[0], context->saved_data["radii"].toIntVector()),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor BoxSum(const at::Tensor& image, const std::vector<int64_t>& radii) {
  TORCH_CHECK_VALUE(image.dim() == 2 + static_cast<int64_t>(radii.size()),
                    "BoxSum: wanted an image with a batch, channels and ",
                    radii.size(), " axes, got ", image.sizes());
  return BoxSumFunction::apply(image, radii);
}

at::Tensor WindowSum(const at::Tensor& image,
                     const std::vector<std::vector<double>>& taps) {
  TORCH_CHECK_VALUE(image.dim() == 2 + static_cast<int64_t>(taps.size()),
                    "WindowSum: wanted an image with a batch, channels and ",
                    taps.size(), " axes, got ", image.sizes());
  return WindowSumFunction::apply(image, taps);
}

std::vector<double> GaussianTaps(int64_t window, double sigma) {
  std::vector<double> taps(window);
  double sum = 0;
  for (int64_t i = 0; i < window; ++i) {
    const double k = static_cast<double>(i - window / 2);
    sum += taps[i] = std::exp(-k * k / (2 * sigma * sigma));
  }
  for (double& tap : taps) tap /= sum;
  return taps;
}

}  // namespace mir::losses
