#include <ATen/core/Tensor.h>

#include <vector>

#include "mir/losses/compat/ncc.h"
#include "mir/losses/gradient_penalty.h"
#include "tests/goldens/handlers.h"

namespace mir::goldens {
namespace {

using ::mir::losses::GradientNorm;

Handler NccVxm(const std::vector<int64_t>& window = {}) {
  return [=](GoldenRun& run) {
    const losses::compat::NccVxm loss(window);
    run.Out("loss", loss(run.In("y_true"), run.In("y_pred")));
  };
}

// MIR's `loss_mult` is the loss's weight.
Handler Penalty(GradientNorm norm, double loss_mult = 1) {
  return [=](GoldenRun& run) {
    losses::GradientPenaltyOptions options;
    options.norm = norm;
    const losses::GradientPenalty penalty(options);
    run.Out("loss", penalty(run.In("y_pred")).mul(loss_mult));
  };
}

}  // namespace

HandlerTable LossHandlers() {
  return {
      {"loss_ncc_vxm", NccVxm()},
      {"loss_ncc_vxm_2d", NccVxm()},
      {"loss_ncc_vxm_b2", NccVxm()},
      {"loss_ncc_vxm_win5", NccVxm({5, 5, 5})},
      {"reg_grad2d_l1", Penalty(GradientNorm::kL1)},
      {"reg_grad2d_l2_mult", Penalty(GradientNorm::kL2, /*loss_mult=*/2)},
      {"reg_grad3d_l1", Penalty(GradientNorm::kL1)},
      {"reg_grad3d_l2", Penalty(GradientNorm::kL2)},
      {"reg_grad3d_l2_mult", Penalty(GradientNorm::kL2, /*loss_mult=*/0.5)},
  };
}

}  // namespace mir::goldens
