#include "mir/losses/dice.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <vector>

#include "mir/losses/arguments.h"
#include "mir/precision/fp32_region.h"

namespace mir::losses {

Dice::Dice(const DiceOptions& options) : options_(options) {
  TORCH_CHECK_VALUE(options.epsilon > 0,
                    "Dice: wanted a positive epsilon, got ", options.epsilon);
}

at::Tensor CheckedLabels(const char* loss, const at::Tensor& labels,
                         const at::Tensor& wanted, int64_t classes) {
  TORCH_CHECK_VALUE(labels.defined(), loss,
                    ": wanted labels, got an undefined tensor");
  TORCH_CHECK_TYPE(
      at::isIntegralType(labels.scalar_type(), /*includeBool=*/true), loss,
      ": wanted integer labels, got ", labels.scalar_type());
  const at::Tensor with_channel =
      labels.dim() + 1 == wanted.dim() ? labels.unsqueeze(1) : labels;
  std::vector<int64_t> shape = wanted.sizes().vec();
  shape[1] = 1;
  TORCH_CHECK_VALUE(with_channel.sizes() == at::IntArrayRef(shape), loss,
                    ": wanted labels ", at::IntArrayRef(shape),
                    ", or without the 1, got ", labels.sizes());
  const at::Tensor result = with_channel.to(wanted.device(), at::kLong);
  const int64_t least = result.min().item<int64_t>();
  const int64_t most = result.max().item<int64_t>();
  TORCH_CHECK_VALUE(least >= 0 && most < classes, loss,
                    ": wanted labels from 0 to ", classes - 1, ", got ",
                    least < 0 ? least : most);
  return result;
}

at::Tensor SumOverOwnLabel(const at::Tensor& values, const at::Tensor& labels,
                           const at::Tensor& counted) {
  at::Tensor own = values.gather(1, labels).to(at::kDouble);
  if (counted.defined()) own = own * counted;
  return at::zeros({values.size(0), values.size(1)}, own.options())
      .scatter_add(1, labels.flatten(1), own.flatten(1));
}

at::Tensor Dice::operator()(const at::Tensor& prediction,
                            const at::Tensor& target) const {
  TORCH_CHECK_VALUE(
      prediction.defined() && target.defined() && prediction.numel() > 0 &&
          (prediction.dim() == 4 || prediction.dim() == 5),
      "Dice: wanted a prediction [N, C, D, H, W] or [N, C, H, W], and not "
      "empty");
  TORCH_CHECK_TYPE(prediction.is_floating_point(),
                   "Dice: wanted floating-point probabilities, got ",
                   prediction.scalar_type());
  const precision::Fp32Region region;
  at::Tensor p = precision::ToComputeType(prediction);
  CheckFiniteIf(options_.check_finite, "Dice", "prediction", p);
  std::vector<int64_t> spatial;
  for (int64_t axis = 2; axis < p.dim(); ++axis) spatial.push_back(axis);

  at::Tensor intersection, sum;
  if (target.is_floating_point()) {
    CheckImagePair("Dice", prediction, target);
    const at::Tensor t = target.to(p.scalar_type());
    CheckFiniteIf(options_.check_finite, "Dice", "target", t);
    intersection = (p * t).sum(spatial);
    sum = p.sum(spatial) + t.sum(spatial);
  } else {
    const at::Tensor labels = CheckedLabels("Dice", target, p, p.size(1));
    intersection = SumOverOwnLabel(p, labels, at::Tensor());
    sum = p.sum(spatial) +
          SumOverOwnLabel(at::ones_like(p.narrow(0, 0, 1)).expand_as(p), labels,
                          at::Tensor());
  }
  if (!options_.include_background) {
    intersection = intersection.slice(1, 1);
    sum = sum.slice(1, 1);
  }
  if (intersection.numel() == 0) return ZeroOf(p);
  const at::Tensor loss = 1 - 2 * intersection / (sum + options_.epsilon);
  const at::Tensor counts =
      options_.skip_absent ? sum.detach() != 0 : at::ones_like(loss);
  return WeightedMean(loss, counts).to(p.scalar_type());
}

}  // namespace mir::losses
