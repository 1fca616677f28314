#include "mir/losses/box_sum.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/constant_pad_nd.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

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

}  // namespace mir::losses
