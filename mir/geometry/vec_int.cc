#include "mir/geometry/vec_int.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "mir/geometry/compose.h"
#include "mir/geometry/displacement_check.h"
#include "mir/geometry/kernels/vec_int_cpu.h"
#include "mir/precision/fp32_region.h"

namespace mir::geometry {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class CpuVecInt : public torch::autograd::Function<CpuVecInt> {
 public:
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& velocity, int64_t steps,
                            WarpConvention convention, VecIntMemory memory) {
    kernels::VecIntSteps kept;
    at::Tensor displacement = kernels::VecIntForward(
        velocity, static_cast<int>(steps), convention,
        /*keep_fields=*/memory == VecIntMemory::kKeepFields, &kept);
    context->save_for_backward({velocity, kept.reach, kept.fields});
    context->saved_data["steps"] = steps;
    context->saved_data["convention"] = static_cast<int64_t>(convention);
    return displacement;
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !at::GradMode::is_enabled(),
        "VecInt: has no second derivative; wanted backward() without "
        "create_graph");
    const variable_list saved = context->get_saved_variables();
    const kernels::VecIntSteps kept = {saved[1], saved[2]};
    const auto get = [&](const char* name) {
      return context->saved_data[name].toInt();
    };
    return {kernels::VecIntBackward(
                gradients[0], saved[0], static_cast<int>(get("steps")),
                static_cast<WarpConvention>(get("convention")), kept),
            at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor VecInt(const at::Tensor& velocity, int steps,
                  WarpConvention convention, VecIntMemory memory) {
  CheckDisplacement("VecInt", "velocity", velocity);
  TORCH_CHECK_VALUE(steps >= 0 && steps <= 32,
                    "VecInt: wanted 0 to 32 steps, came ", steps);
  const at::Tensor source = precision::ToComputeType(velocity);
  if (source.is_cpu() && steps > 0 && source.numel() > 0) {
    if (at::GradMode::is_enabled() && source.requires_grad()) {
      return CpuVecInt::apply(source.contiguous(), int64_t{steps}, convention,
                              memory);
    }
    return kernels::VecIntForward(source.contiguous(), steps, convention,
                                  /*keep_fields=*/false, nullptr);
  }
  at::Tensor displacement = source * std::ldexp(1.0, -steps);
  for (int step = 0; step < steps; ++step) {
    displacement = Compose(displacement, displacement, convention);
  }
  return displacement;
}

}  // namespace mir::geometry
