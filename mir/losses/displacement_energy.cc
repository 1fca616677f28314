#include "mir/losses/displacement_energy.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <cstdint>

#include "mir/losses/arguments.h"
#include "mir/precision/fp32_region.h"

namespace mir::losses {

namespace {

constexpr char kName[] = "DisplacementEnergy";

// Those that a central difference along every axis leaves.
at::Tensor Interior(at::Tensor field, int64_t except = -1) {
  for (int64_t axis = 2; axis < field.dim(); ++axis) {
    const int64_t size = field.size(axis);
    if (axis != except && size >= 3) field = field.narrow(axis, 1, size - 2);
  }
  return field;
}

// The central difference along `axis`, in the interior.
at::Tensor Derivative(const at::Tensor& field, int64_t axis, double spacing) {
  const int64_t size = field.size(axis);
  if (size < 3) return Interior(field) * 0;
  const at::Tensor rows = Interior(field, axis);
  return (rows.narrow(axis, 2, size - 2) - rows.narrow(axis, 0, size - 2)) *
         (0.5 / spacing);
}

}  // namespace

DisplacementEnergy::DisplacementEnergy(const DisplacementEnergyOptions& options)
    : options_(options) {
  for (const double size : options.spacing) {
    TORCH_CHECK_VALUE(size > 0 && std::isfinite(size), kName,
                      ": wanted positive spacings, got ", size);
  }
  TORCH_CHECK_VALUE(options.mu >= 0 && options.lambda >= 0, kName,
                    ": wanted constants of at least 0, got mu ", options.mu,
                    " and lambda ", options.lambda);
}

at::Tensor DisplacementEnergy::operator()(
    const at::Tensor& displacement) const {
  return Compute(displacement, at::Tensor());
}

at::Tensor DisplacementEnergy::operator()(const at::Tensor& displacement,
                                          const at::Tensor& weight) const {
  CheckDisplacement(kName, displacement);
  CheckWeight(kName, weight, displacement);
  return Compute(displacement, weight);
}

at::Tensor DisplacementEnergy::Compute(const at::Tensor& displacement,
                                       const at::Tensor& weight) const {
  CheckDisplacement(kName, displacement);
  const int64_t axes = displacement.dim() - 2;
  TORCH_CHECK_VALUE(options_.spacing.empty() ||
                        options_.spacing.size() == static_cast<size_t>(axes),
                    kName, ": wanted a spacing for each of ", axes,
                    " axes, got ", options_.spacing.size());
  const precision::Fp32Region region;
  at::Tensor field = precision::ToComputeType(displacement);
  CheckFiniteIf(options_.check_finite, kName, "displacement", field);
  std::vector<double> spacing(axes, 1.0);
  if (!options_.spacing.empty()) {
    spacing = options_.spacing;
    std::vector<int64_t> per_channel(field.dim(), 1);
    per_channel[1] = axes;
    field = field * at::tensor(spacing, field.options()).view(per_channel);
  }
  const auto along = [&](const at::Tensor& of, int64_t axis) {
    return Derivative(of, 2 + axis, spacing[axis]);
  };
  std::vector<at::Tensor> gradient;  // By axis.
  for (int64_t axis = 0; axis < axes; ++axis) {
    gradient.push_back(along(field, axis));
  }

  at::Tensor density;
  const auto add = [&](const at::Tensor& term) {
    density = density.defined() ? density + term : term;
  };
  switch (options_.kind) {
    case EnergyKind::kBending:
      for (int64_t i = 0; i < axes; ++i) {
        for (int64_t j = i; j < axes; ++j) {
          const at::Tensor second = along(gradient[i], j).square();
          add(i == j ? second : 2 * second);
        }
      }
      break;
    case EnergyKind::kLinearElastic: {
      at::Tensor divergence;
      for (int64_t i = 0; i < axes; ++i) {
        const at::Tensor own = gradient[i].narrow(1, i, 1);
        divergence = divergence.defined() ? divergence + own : own;
        add(options_.mu * own.square());
        for (int64_t j = i + 1; j < axes; ++j) {
          const at::Tensor shear =
              gradient[i].narrow(1, j, 1) + gradient[j].narrow(1, i, 1);
          add(0.5 * options_.mu * shear.square());
        }
      }
      add(0.5 * options_.lambda * divergence.square());
      break;
    }
    case EnergyKind::kGradientL1:
      for (const at::Tensor& one : gradient) add(one.abs() / axes);
      break;
    case EnergyKind::kGradientL2:
      for (const at::Tensor& one : gradient) add(one.square() / axes);
      break;
  }
  if (!weight.defined()) return density.mean();
  at::Tensor weights = Interior(weight.to(field.scalar_type()));
  if (options_.kind == EnergyKind::kBending) weights = Interior(weights);
  return (density * weights).mean();
}

}  // namespace mir::losses
