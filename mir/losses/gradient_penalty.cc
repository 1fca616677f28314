#include "mir/losses/gradient_penalty.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "mir/losses/arguments.h"
#include "mir/losses/fused_loss.h"
#include "mir/losses/kernels/gradient_penalty.h"
#include "mir/precision/fp32_region.h"

namespace mir::losses {
namespace {

constexpr char kName[] = "GradientPenalty";

// Keeps the slope of the isotropic norm finite where nothing changes.
constexpr double kIsotropicFloor = 1e-6;

void CheckArguments(const at::Tensor& displacement,
                    const GradientPenaltyOptions& options) {
  CheckDisplacement(kName, displacement);
  const int64_t axes = displacement.dim() - 2;
  TORCH_CHECK_VALUE(options.spacing.empty() ||
                        options.spacing.size() == static_cast<size_t>(axes),
                    kName, ": wanted a spacing for each of ", axes,
                    " axes, got ", options.spacing.size(),
                    " for a displacement ", displacement.sizes());
}

// What a unit of difference of channel `channel` along `axis` counts.
double SpacingRatio(const GradientPenaltyOptions& options, int64_t channel,
                    int64_t axis) {
  if (options.spacing.empty()) return 1;
  return options.spacing[channel] / options.spacing[axis];
}

kernels::PenaltyShape ShapeOf(const at::Tensor& displacement,
                              const GradientPenaltyOptions& options) {
  const int64_t axes = displacement.dim() - 2;
  kernels::PenaltyShape shape;
  shape.fields = displacement.size(0) * axes;
  shape.size[0] = 1;
  for (int64_t axis = 0; axis < axes; ++axis) {
    shape.size[3 - axes + axis] = displacement.size(2 + axis);
  }
  shape.squared = options.norm == GradientNorm::kL2;
  shape.weights.resize(axes);
  for (int64_t channel = 0; channel < axes; ++channel) {
    for (int64_t axis = 0; axis < axes; ++axis) {
      const int64_t size = displacement.size(2 + axis);
      if (size == 1) continue;
      const double ratio = SpacingRatio(options, channel, axis);
      const double pairs =
          static_cast<double>(displacement.numel()) / size * (size - 1);
      shape.weights[channel][3 - axes + axis] =
          (shape.squared ? ratio * ratio : ratio) / (axes * pairs);
    }
  }
  return shape;
}

template <typename T>
double PenaltyOnCpu(const at::Tensor& fields,
                    const GradientPenaltyOptions& options,
                    const at::Tensor& gradient) {
  const double value = kernels::NeighbourPenalty<T>(
      fields.const_data_ptr<T>(), ShapeOf(fields, options),
      gradient.defined() ? gradient.mutable_data_ptr<T>() : nullptr);
  if (!std::isfinite(value)) CheckFinite(kName, "displacement", fields);
  return value;
}

}  // namespace

GradientPenalty::GradientPenalty(const GradientPenaltyOptions& options)
    : options_(options) {
  for (const double size : options.spacing) {
    TORCH_CHECK_VALUE(size > 0 && std::isfinite(size), kName,
                      ": wanted positive spacings, got ", size);
  }
}

at::Tensor GradientPenalty::operator()(const at::Tensor& displacement) const {
  CheckArguments(displacement, options_);
  if (!displacement.is_cpu() || options_.norm == GradientNorm::kIsotropic) {
    CheckFiniteIf(false, kName, "displacement", displacement);
    return GradientPenaltyByOperators(displacement, options_);
  }
  const precision::Fp32Region region;
  return FusedLoss(
      kName, precision::ToComputeType(displacement),
      [options = options_](const at::Tensor& fields,
                           const at::Tensor& gradient) {
        return fields.scalar_type() == at::kDouble
                   ? PenaltyOnCpu<double>(fields, options, gradient)
                   : PenaltyOnCpu<float>(fields, options, gradient);
      });
}

at::Tensor GradientPenalty::operator()(const at::Tensor& displacement,
                                       const at::Tensor& weight) const {
  CheckArguments(displacement, options_);
  CheckFiniteIf(false, kName, "displacement", displacement);
  return GradientPenaltyByOperators(displacement, options_, weight);
}

namespace {

// The part of `tensor` in which a difference along each of `axes` has its
// further voxel, moved back by one along `back` (or not, where it is -1).
at::Tensor FurtherVoxels(at::Tensor tensor, const std::vector<int64_t>& axes,
                         int64_t back) {
  for (const int64_t axis : axes) {
    tensor = tensor.narrow(axis, axis == back ? 0 : 1, tensor.size(axis) - 1);
  }
  return tensor;
}

at::Tensor DifferenceAlong(const at::Tensor& fields, int64_t axis,
                           const std::vector<int64_t>& cropped,
                           const GradientPenaltyOptions& options) {
  const at::Tensor difference =
      FurtherVoxels(fields, cropped, -1) - FurtherVoxels(fields, cropped, axis);
  if (options.spacing.empty()) return difference;
  const int64_t axes = fields.dim() - 2;
  std::vector<double> ratios;
  for (int64_t channel = 0; channel < axes; ++channel) {
    ratios.push_back(SpacingRatio(options, channel, axis - 2));
  }
  std::vector<int64_t> per_channel(fields.dim(), 1);
  per_channel[1] = axes;
  return difference * at::tensor(ratios, fields.options()).view(per_channel);
}

}  // namespace

at::Tensor GradientPenaltyByOperators(const at::Tensor& displacement,
                                      const GradientPenaltyOptions& options) {
  return GradientPenaltyByOperators(displacement, options, at::Tensor());
}

at::Tensor GradientPenaltyByOperators(const at::Tensor& displacement,
                                      const GradientPenaltyOptions& options,
                                      const at::Tensor& weight) {
  CheckArguments(displacement, options);
  const precision::Fp32Region region;
  const at::Tensor fields = precision::ToComputeType(displacement);
  if (options.check_finite) CheckFinite(kName, "displacement", fields);
  at::Tensor weights;
  if (weight.defined()) {
    CheckWeight(kName, weight, displacement);
    weights = weight.to(fields.scalar_type());
  }
  const auto mean = [&](const at::Tensor& values,
                        const std::vector<int64_t>& cropped) {
    return weights.defined()
               ? (values * FurtherVoxels(weights, cropped, -1)).mean()
               : values.mean();
  };
  const int64_t axes = fields.dim() - 2;
  std::vector<int64_t> long_axes;
  for (int64_t axis = 2; axis < fields.dim(); ++axis) {
    if (fields.size(axis) > 1) long_axes.push_back(axis);
  }
  at::Tensor sum = ZeroOf(fields);
  if (options.norm == GradientNorm::kIsotropic) {
    if (long_axes.empty()) return sum;
    at::Tensor squares;
    for (const int64_t axis : long_axes) {
      const at::Tensor square =
          DifferenceAlong(fields, axis, long_axes, options).square();
      squares = squares.defined() ? squares + square : square;
    }
    return mean((squares + kIsotropicFloor).sqrt(), long_axes) / axes;
  }
  for (const int64_t axis : long_axes) {
    const at::Tensor difference =
        DifferenceAlong(fields, axis, {axis}, options);
    sum = sum + mean(options.norm == GradientNorm::kL2 ? difference.square()
                                                       : difference.abs(),
                     {axis});
  }
  return sum / axes;
}

}  // namespace mir::losses
