#include "mir/geometry/lddmm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "mir/autograd/recompute.h"
#include "mir/geometry/displacement_check.h"
#include "mir/geometry/finite_check.h"
#include "mir/precision/fp32_region.h"

namespace mir::geometry {
namespace {

// The tensors of a path at a time. A constant one, which a step returns as it
// is, lets its gradient pass.
using State = std::vector<at::Tensor>;
using StateFunction = std::function<State(const State&)>;

// The central difference along a spatial axis, of a periodic function.
at::Tensor Derivative(const at::Tensor& values, int64_t axis) {
  return (values.roll(-1, 2 + axis) - values.roll(1, 2 + axis)) * 0.5;
}

at::Tensor Component(const at::Tensor& field, int64_t axis) {
  return field.narrow(/*dim=*/1, axis, 1);
}

// D values * velocity.
at::Tensor Along(const at::Tensor& values, const at::Tensor& velocity) {
  at::Tensor sum;
  for (int64_t axis = 0; axis < velocity.size(1); ++axis) {
    const at::Tensor part =
        Derivative(values, axis) * Component(velocity, axis);
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

// div(values * velocity), of each channel.
at::Tensor Divergence(const at::Tensor& values, const at::Tensor& velocity) {
  at::Tensor sum;
  for (int64_t axis = 0; axis < velocity.size(1); ++axis) {
    const at::Tensor part =
        Derivative(values * Component(velocity, axis), axis);
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

// How fast a flow changes a momentum: minus the coadjoint action. The two terms
// do opposite work on v, whatever v is, since a central difference is its own
// negative adjoint.
at::Tensor MomentumRate(const at::Tensor& momentum,
                        const at::Tensor& velocity) {
  std::vector<at::Tensor> turned;  // (Dv)^T m
  for (int64_t axis = 0; axis < velocity.size(1); ++axis) {
    turned.push_back((momentum * Derivative(velocity, axis)).sum(/*dim=*/1));
  }
  return -(at::stack(turned, /*dim=*/1) + Divergence(momentum, velocity));
}

// y + factor * rate.
State Add(const State& y, const State& rate, double factor) {
  State sum;
  for (size_t i = 0; i < y.size(); ++i) {
    sum.push_back(rate[i].defined() ? y[i] + factor * rate[i] : y[i]);
  }
  return sum;
}

// One time step of dy/dt = rate(y). An undefined rate is zero.
State Advance(const State& y, double time, TimeStepping stepping,
              const StateFunction& rate) {
  const State first = rate(y);
  if (stepping == TimeStepping::kEuler) return Add(y, first, time);
  const State second = rate(Add(y, first, time / 2));
  const State third = rate(Add(y, second, time / 2));
  const State fourth = rate(Add(y, third, time));
  const State middle = Add(Add(y, second, time / 3), third, time / 3);
  return Add(Add(middle, first, time / 6), fourth, time / 6);
}

State Recomputed(const StateFunction& function, const State& state) {
  return autograd::Recompute(function, state, /*parameters=*/{});
}

// `count` steps, each half of which is a segment made of two halves in turn: at
// any time the backward pass holds two states per level, and one step.
StateFunction Halves(const StateFunction& step, int count) {
  if (count == 1) return step;
  const StateFunction first = Halves(step, count / 2);
  const StateFunction second = Halves(step, count - count / 2);
  return [first, second](const State& state) {
    return Recomputed(second, Recomputed(first, state));
  };
}

State Follow(const char* function, const StateFunction& rate, State state,
             const PathOptions& options) {
  const StateFunction step = [rate, time = 1.0 / options.steps,
                              stepping = options.stepping](const State& from) {
    const precision::Fp32Region fp32;
    return Advance(from, time, stepping, rate);
  };
  if (options.memory == PathMemory::kLogarithmic) {
    state = Halves(step, options.steps)(state);
  } else {
    for (int i = 0; i < options.steps; ++i) {
      state = options.memory == PathMemory::kSteps ? Recomputed(step, state)
                                                   : step(state);
    }
  }
  const at::Tensor& end = state.front();
  TORCH_CHECK_VALUE(
      !end.is_cpu() ||
          std::isfinite(end.detach().sum(at::kDouble).item<double>()),
      function, ": the path is not finite after ", options.steps,
      " steps; take more of them, or a smoother field");
  return state;
}

at::Tensor CheckedField(const char* function, const char* name,
                        const at::Tensor& field) {
  CheckDisplacement(function, name, field);
  if (field.is_cpu()) CheckFinite(function, name, field);
  return precision::ToComputeType(field);
}

void CheckOptions(const char* function, const PathOptions& options) {
  TORCH_CHECK_VALUE(options.steps >= 1, function,
                    ": wanted at least 1 step, came ", options.steps);
}

}  // namespace

at::Tensor KineticEnergy(const at::Tensor& momentum, const SobolevOperator& l) {
  const precision::Fp32Region fp32;
  const at::Tensor m = CheckedField("KineticEnergy", "momentum", momentum);
  std::vector<int64_t> all_but_first(m.dim() - 1);
  std::iota(all_but_first.begin(), all_but_first.end(), 1);
  return (m * SobolevSmooth(m, l)).sum(all_but_first) * 0.5;
}

Geodesic Shoot(const at::Tensor& initial_momentum, const SobolevOperator& l,
               const PathOptions& options) {
  CheckOptions("Shoot", options);
  const at::Tensor momentum =
      CheckedField("Shoot", "initial momentum", initial_momentum);
  const at::Tensor k = SobolevSymbol(momentum.sizes().slice(2), l,
                                     /*exponent=*/-1, momentum.device());
  const auto rate = [k](const State& state) -> State {
    const at::Tensor velocity = MultiplySpectrum(state[0], k);
    return {MomentumRate(state[0], velocity),
            -(velocity + Along(state[1], velocity))};
  };
  State end =
      Follow("Shoot", rate, {momentum, at::zeros_like(momentum)}, options);
  return {std::move(end[0]), std::move(end[1])};
}

at::Tensor Transport(const at::Tensor& quantity, const at::Tensor& velocity,
                     Carried carried, const PathOptions& options) {
  CheckOptions("Transport", options);
  const at::Tensor v = CheckedField("Transport", "velocity", velocity);
  TORCH_CHECK_VALUE(
      quantity.defined() && quantity.is_floating_point() &&
          quantity.dim() == v.dim() && quantity.size(0) == v.size(0) &&
          quantity.sizes().slice(2) == v.sizes().slice(2) &&
          (carried != Carried::kMomentum || quantity.size(1) == v.size(1)),
      "Transport: wanted a floating quantity for a velocity ", v.sizes(),
      ", came ", quantity.defined() ? quantity.sizes() : at::IntArrayRef());
  const bool wide =
      quantity.scalar_type() == at::kDouble || v.scalar_type() == at::kDouble;
  const at::ScalarType dtype = wide ? at::kDouble : at::kFloat;
  const auto rate = [carried](const State& state) -> State {
    const at::Tensor &q = state[0], &flow = state[1];
    switch (carried) {
      case Carried::kImage:
        return {-Along(q, flow), {}};
      case Carried::kDensity:
        return {-Divergence(q, flow), {}};
      case Carried::kMomentum:
        break;
    }
    return {MomentumRate(q, flow), {}};
  };
  return Follow("Transport", rate, {quantity.to(dtype), v.to(dtype)},
                options)[0];
}

}  // namespace mir::geometry
