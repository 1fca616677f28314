#include "mir/losses/sparse_dice.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_unique.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "mir/geometry/warp.h"
#include "mir/losses/arguments.h"
#include "mir/precision/fp32_region.h"

namespace mir::losses {

namespace {

std::vector<int64_t> ChooseClasses(const at::Tensor& labels,
                                   const SparseDiceOptions& options) {
  std::vector<int64_t> pool;
  const auto add = [&](int64_t label) {
    if (label != 0 || options.include_background) pool.push_back(label);
  };
  if (options.present_only) {
    const at::Tensor present =
        std::get<0>(at::_unique(labels.cpu(), /*sorted=*/true));
    for (int64_t i = 0; i < present.numel(); ++i) {
      add(present.const_data_ptr<int64_t>()[i]);
    }
  } else {
    for (int64_t label = 0; label < options.num_classes; ++label) add(label);
  }
  const size_t most = options.max_classes;
  if (pool.size() > most) {
    const at::Tensor order =
        at::randperm(static_cast<int64_t>(pool.size()), at::kLong);
    std::vector<int64_t> chosen;
    for (size_t i = 0; i < most; ++i) {
      chosen.push_back(pool[order.const_data_ptr<int64_t>()[i]]);
    }
    return chosen;
  }
  const std::vector<int64_t> found = pool;
  for (int64_t label = 0; label < options.num_classes && pool.size() < most;
       ++label) {
    if (std::find(found.begin(), found.end(), label) == found.end()) {
      add(label);
    }
  }
  return pool;
}

}  // namespace

at::Tensor ClassMasks(const at::Tensor& labels, at::IntArrayRef classes) {
  std::vector<int64_t> per_channel(labels.dim(), 1);
  per_channel[1] = classes.size();
  return (labels == at::tensor(classes, labels.options()).view(per_channel))
      .to(at::kFloat);
}

SparseDice::SparseDice(const SparseDiceOptions& options) : options_(options) {
  TORCH_CHECK_VALUE(options.max_classes > 0,
                    "SparseDice: wanted a positive max_classes, got ",
                    options.max_classes);
  TORCH_CHECK_VALUE(options.present_only || options.num_classes > 0,
                    "SparseDice: wanted num_classes where not present_only");
}

at::Tensor SparseDice::operator()(const at::Tensor& moving,
                                  const at::Tensor& fixed,
                                  const at::Tensor& displacement) const {
  CheckDisplacement("SparseDice", displacement);
  const int64_t limit = options_.num_classes > 0
                            ? options_.num_classes
                            : std::numeric_limits<int64_t>::max();
  const at::Tensor from =
      CheckedLabels("SparseDice", moving, displacement, limit);
  const at::Tensor to = CheckedLabels("SparseDice", fixed, displacement, limit);
  const precision::Fp32Region region;
  const at::Tensor field = precision::ToComputeType(displacement);
  CheckFiniteIf(options_.dice.check_finite, "SparseDice", "displacement",
                field);
  const std::vector<int64_t> classes = ChooseClasses(to, options_);
  if (classes.empty()) return ZeroOf(field);
  const at::Tensor warped =
      geometry::Warp(ClassMasks(from, classes).to(field.scalar_type()), field,
                     {.convention = options_.convention});
  DiceOptions dice = options_.dice;
  dice.include_background = true;  // The choice of classes left it out.
  return Dice(dice)(warped, ClassMasks(to, classes).to(field.scalar_type()));
}

}  // namespace mir::losses
