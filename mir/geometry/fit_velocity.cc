#include "mir/geometry/fit_velocity.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>
#include <c10/util/Exception.h>
#include <torch/optim/adam.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "mir/geometry/displacement_check.h"
#include "mir/geometry/resize.h"
#include "mir/geometry/vec_int.h"
#include "mir/precision/fp32_region.h"

namespace mir::geometry {
namespace {

void CheckOptions(const char* function, int steps, double smallest_change,
                  double learning_rate) {
  TORCH_CHECK_VALUE(
      steps >= 0 && steps <= 32 && smallest_change >= 0 && learning_rate > 0,
      function,
      ": wanted 0 to 32 steps, a smallest change of 0 or more and a learning "
      "rate above 0, came ",
      steps, ", ", smallest_change, " and ", learning_rate);
}

VelocityFit Fit(const at::Tensor& displacement, const at::Tensor& initial,
                const FitVelocityOptions& options) {
  const at::AutoGradMode grad(true);
  const precision::Fp32Region fp32;
  const at::Tensor velocity =
      initial.detach().clone(at::MemoryFormat::Contiguous).requires_grad_();
  torch::optim::Adam adam({velocity},
                          torch::optim::AdamOptions(options.learning_rate));
  VelocityFit fit = {velocity.detach(), {}, 0, 0};
  double last = std::numeric_limits<double>::infinity();
  while (fit.iterations < options.iterations) {
    adam.zero_grad();
    const at::Tensor integrated =
        VecInt(velocity, options.steps, options.convention);
    const at::Tensor objective = options.objective == FitObjective::kMeanSquare
                                     ? at::mse_loss(integrated, displacement)
                                     : at::l1_loss(integrated, displacement);
    objective.backward();
    adam.step();
    ++fit.iterations;
    fit.displacement = integrated.detach();
    fit.objective = objective.item<double>();
    if (std::abs(last - fit.objective) < options.smallest_change) break;
    last = fit.objective;
  }
  return fit;
}

at::Tensor Checked(const char* function, const char* what,
                   const at::Tensor& field) {
  CheckDisplacement(function, what, field);
  return precision::ToComputeType(field.detach());
}

}  // namespace

VelocityFit FitVelocity(const at::Tensor& displacement,
                        const FitVelocityOptions& options) {
  const at::Tensor field = Checked("FitVelocity", "displacement", displacement);
  CheckOptions("FitVelocity", options.steps, options.smallest_change,
               options.learning_rate);
  TORCH_CHECK_VALUE(options.iterations >= 1,
                    "FitVelocity: wanted at least 1 iteration, came ",
                    options.iterations);
  return Fit(field, field, options);
}

at::Tensor FitVelocityFast(const at::Tensor& displacement,
                           const FitVelocityFastOptions& options) {
  constexpr char kName[] = "FitVelocityFast";
  const at::Tensor field = Checked(kName, "displacement", displacement);
  CheckOptions(kName, options.steps, options.smallest_change,
               options.learning_rate);
  TORCH_CHECK_VALUE(options.coarse_iterations >= 0 &&
                        options.fine_iterations >= 0 &&
                        options.downsampling >= 1,
                    kName,
                    ": wanted 0 or more iterations and a downsampling of at "
                    "least 1, came ",
                    options.coarse_iterations, " and ", options.fine_iterations,
                    ", and ", options.downsampling);
  at::Tensor velocity = field;
  if (options.initial_velocity.defined()) {
    velocity = Checked(kName, "initial_velocity", options.initial_velocity)
                   .to(field.options());
    TORCH_CHECK_VALUE(velocity.sizes() == field.sizes(), kName,
                      ": wanted an initial_velocity ", field.sizes(),
                      " as the displacement, came ", velocity.sizes());
  }
  FitVelocityOptions fit;
  fit.steps = options.steps;
  fit.smallest_change = options.smallest_change;
  fit.learning_rate = options.learning_rate;
  fit.convention = options.convention;
  fit.iterations = options.coarse_iterations;
  if (options.downsampling > 1) {
    const at::IntArrayRef sizes = field.sizes().slice(2);
    std::vector<int64_t> coarse;
    for (const int64_t size : sizes) {
      coarse.push_back(std::max<int64_t>(size / options.downsampling, 1));
    }
    velocity = ResizeDisplacement(Fit(ResizeDisplacement(field, coarse),
                                      ResizeDisplacement(velocity, coarse), fit)
                                      .velocity,
                                  sizes);
  } else {
    velocity = Fit(field, velocity, fit).velocity;
  }
  fit.iterations = options.fine_iterations;
  return Fit(field, velocity, fit).velocity;
}

at::Tensor InvertViaVelocity(const at::Tensor& displacement,
                             const FitVelocityOptions& options) {
  const at::NoGradGuard no_grad;
  return VecInt(-FitVelocity(displacement, options).velocity, options.steps,
                options.convention);
}

at::Tensor EnsembleAverage(const std::vector<EnsembleMember>& members,
                           const FitVelocityOptions& options) {
  constexpr char kName[] = "EnsembleAverage";
  TORCH_CHECK_VALUE(!members.empty(), kName, ": wanted members, came none");
  double total = 0;
  for (const EnsembleMember& member : members) {
    CheckDisplacement(kName, "field", member.field);
    TORCH_CHECK_VALUE(member.field.sizes() == members[0].field.sizes(), kName,
                      ": wanted fields of one shape, came ",
                      members[0].field.sizes(), " and ", member.field.sizes());
    TORCH_CHECK_VALUE(member.weight >= 0, kName,
                      ": wanted weights of 0 or more, came ", member.weight);
    total += member.weight;
  }
  TORCH_CHECK_VALUE(total > 0 && std::isfinite(total), kName,
                    ": wanted finite weights that are not all 0");
  const at::NoGradGuard no_grad;
  at::Tensor mean;
  for (const EnsembleMember& member : members) {
    const at::Tensor velocity =
        member.is_velocity ? Checked(kName, "field", member.field)
                           : FitVelocity(member.field, options).velocity;
    const at::Tensor part = velocity * (member.weight / total);
    mean = mean.defined() ? mean + part : part;
  }
  return VecInt(mean, options.steps, options.convention);
}

}  // namespace mir::geometry
