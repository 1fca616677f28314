#include "mir/losses/mind_ssc.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/replication_pad3d.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <array>
#include <cmath>
#include <vector>

#include "mir/losses/arguments.h"
#include "mir/losses/box_sum.h"
#include "mir/losses/fused_loss.h"
#include "mir/losses/kernels/self_similarity.h"
#include "mir/precision/fp32_region.h"

namespace mir::losses {
namespace {

constexpr char kName[] = "MindSsc";

void CheckOptions(const MindSscOptions& options) {
  TORCH_CHECK_VALUE(options.radius >= 0 && options.dilation > 0, kName,
                    ": wanted a radius of at least 0 and a positive dilation, "
                    "got ",
                    options.radius, " and ", options.dilation);
}

// [N, C, D, H, W] or [N, C, H, W] as [N C, 1, D, H, W].
at::Tensor Volumes(const at::Tensor& image) {
  const at::Tensor deep = image.dim() == 4 ? image.unsqueeze(2) : image;
  return deep.flatten(0, 1).unsqueeze(1);
}

at::Tensor Pad(const at::Tensor& volumes, int64_t by) {
  return by == 0 ? volumes
                 : at::replication_pad3d(volumes, {by, by, by, by, by, by});
}

}  // namespace

MindSsc::MindSsc(const MindSscOptions& options) : options_(options) {
  CheckOptions(options);
}

at::Tensor MindSsc::operator()(const at::Tensor& fixed,
                               const at::Tensor& moving) const {
  CheckImagePair(kName, fixed, moving);
  if (!fixed.is_cpu()) return MindSscByOperators(fixed, moving, options_);
  const precision::Fp32Region region;
  const at::ScalarType compute = CommonComputeType(fixed, moving);
  const at::Tensor f = fixed.to(compute), m = moving.to(compute);
  CheckFinite(kName, "fixed", f);
  CheckFinite(kName, "moving", m);
  return FusedLoss(
      kName, f, m,
      [options = options_](const at::Tensor& x, const at::Tensor& y,
                           const at::Tensor& grad_x, const at::Tensor& grad_y) {
        const std::array<int64_t, 3> size = {x.dim() == 5 ? x.size(2) : 1,
                                             x.size(-2), x.size(-1)};
        const double terms =
            static_cast<double>(kernels::kSelfSimilarities) * x.numel();
        const auto compare = [&](auto zero, const at::Tensor& a,
                                 const at::Tensor& b, const at::Tensor& out) {
          using T = decltype(zero);
          return kernels::CompareSelfSimilarities<T>(
              a.const_data_ptr<T>(), b.const_data_ptr<T>(),
              x.size(0) * x.size(1), size, options.radius, options.dilation,
              out.defined() ? out.mutable_data_ptr<T>() : nullptr);
        };
        const auto run = [&](const at::Tensor& a, const at::Tensor& b,
                             const at::Tensor& out) {
          const double sum = x.scalar_type() == at::kDouble
                                 ? compare(0.0, a, b, out)
                                 : compare(0.0f, a, b, out);
          if (out.defined()) out.mul_(1 / terms);
          return sum / terms;
        };
        // Symmetric, hence differentiable in either as in the second one.
        if (grad_x.defined()) {
          const double value = run(y, x, grad_x);
          if (!grad_y.defined()) return value;
        }
        return run(x, y, grad_y);
      });
}

at::Tensor MindSscDescriptor(const at::Tensor& image,
                             const MindSscOptions& options) {
  CheckOptions(options);
  TORCH_CHECK_VALUE(image.defined() && image.dim() == 5 && image.size(1) == 1 &&
                        image.numel() > 0,
                    "MindSscDescriptor: wanted a volume [N, 1, D, H, W], and "
                    "not empty");
  TORCH_CHECK_TYPE(image.is_floating_point(),
                   "MindSscDescriptor: wanted a floating-point volume, got ",
                   image.scalar_type());
  const precision::Fp32Region region;
  const int64_t dilation = options.dilation, radius = options.radius;
  const at::Tensor padded = Pad(precision::ToComputeType(image), dilation);
  const auto shifted = [&](const std::array<int, 3>& offset) {
    at::Tensor result = padded;
    for (int axis = 0; axis < 3; ++axis) {
      result = result.narrow(2 + axis, dilation * (1 + offset[axis]),
                             image.size(2 + axis));
    }
    return result;
  };
  std::vector<at::Tensor> similarities;
  for (const kernels::NeighbourPair& pair : kernels::kNeighbourPairs) {
    const at::Tensor squares =
        Pad((shifted(pair.first) - shifted(pair.second)).square(), radius);
    at::Tensor sum = BoxSum(squares, {radius, radius, radius});
    for (int axis = 2; axis < 5; ++axis) {
      sum = sum.narrow(axis, radius, image.size(axis));
    }
    similarities.push_back(sum / std::pow(2 * radius + 1, 3));
  }
  at::Tensor mind = at::cat(similarities, 1);
  mind = mind - mind.amin({1}, /*keepdim=*/true);
  const at::Tensor variance = mind.mean({1}, /*keepdim=*/true);
  const at::Tensor mean =
      variance.detach().mean({1, 2, 3, 4}, /*keepdim=*/true);
  // A constant image has none: its descriptor is 1 throughout.
  const at::Tensor scale = at::where(mean > 0, mean, at::zeros_like(mean) + 1);
  const at::Tensor bounded =
      at::minimum(at::maximum(variance, scale * 1e-3), scale * 1e3);
  const at::Tensor described = (-mind / bounded).exp();
  std::vector<at::Tensor> ordered;
  for (const int64_t channel : {6, 8, 1, 11, 2, 10, 0, 7, 9, 4, 5, 3}) {
    ordered.push_back(described.select(1, channel));
  }
  return at::stack(ordered, 1);
}

at::Tensor MindSscByOperators(const at::Tensor& fixed, const at::Tensor& moving,
                              const MindSscOptions& options) {
  CheckImagePair(kName, fixed, moving);
  const precision::Fp32Region region;
  const at::ScalarType compute = CommonComputeType(fixed, moving);
  const at::Tensor f = fixed.to(compute), m = moving.to(compute);
  if (options.check_finite) {
    CheckFinite(kName, "fixed", f);
    CheckFinite(kName, "moving", m);
  }
  return (MindSscDescriptor(Volumes(f), options) -
          MindSscDescriptor(Volumes(m), options))
      .square()
      .mean();
}

}  // namespace mir::losses
