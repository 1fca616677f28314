#include <ATen/core/Tensor.h>

#include <vector>

#include "mir/losses/compat/ncc.h"
#include "mir/losses/gradient_penalty.h"
#include "tests/goldens/handlers.h"

namespace mir::goldens {
namespace {

using ::mir::losses::GradientNorm;

namespace compat = losses::compat;

// Cases name the two images in one of two ways.
template <typename Loss>
Handler TrueAndPred(const Loss& loss) {
  return [=](GoldenRun& run) {
    run.Out("loss", loss(run.In("y_true"), run.In("y_pred")));
  };
}

template <typename Loss>
Handler IAndJ(const Loss& loss) {
  return
      [=](GoldenRun& run) { run.Out("loss", loss(run.In("I"), run.In("J"))); };
}

Handler NccVfa(int64_t window, int64_t scales, bool half_resolution) {
  compat::NccVfaOptions options;
  options.window = window;
  options.scales = scales;
  options.half_resolution = half_resolution;
  return IAndJ(compat::NccVfa(options));
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
      {"loss_fast_ncc", TrueAndPred(compat::FastNcc())},
      {"loss_fast_ncc_win5", TrueAndPred(compat::FastNcc(5))},
      {"loss_ncc", TrueAndPred(compat::Ncc())},
      {"loss_ncc_2d", TrueAndPred(compat::Ncc())},
      {"loss_ncc_fp16", TrueAndPred(compat::NccFp16())},
      {"loss_ncc_fp16_channels", TrueAndPred(compat::NccFp16(5))},
      {"loss_ncc_fp16_plain",
       TrueAndPred(compat::NccFp16(7, /*squared=*/false))},
      {"loss_ncc_mok", IAndJ(compat::NccMok())},
      {"loss_ncc_mok2", IAndJ(compat::NccMok())},
      {"loss_ncc_mok2_channels", IAndJ(compat::NccMok(5))},
      {"loss_ncc_mok_win5", IAndJ(compat::NccMok(5, 1e-3))},
      {"loss_ncc_vfa", NccVfa(9, 1, false)},
      {"loss_ncc_vfa_half", NccVfa(7, 1, true)},
      {"loss_ncc_vfa_scale3", NccVfa(9, 3, false)},
      {"loss_ncc_vxm", TrueAndPred(compat::NccVxm())},
      {"loss_ncc_vxm_2d", TrueAndPred(compat::NccVxm())},
      {"loss_ncc_vxm_b2", TrueAndPred(compat::NccVxm())},
      {"loss_ncc_vxm_win5",
       TrueAndPred(compat::NccVxm(std::vector<int64_t>{5, 5, 5}))},
      {"loss_ncc_win7", TrueAndPred(compat::Ncc(7))},
      {"reg_grad2d_l1", Penalty(GradientNorm::kL1)},
      {"reg_grad2d_l2_mult", Penalty(GradientNorm::kL2, /*loss_mult=*/2)},
      {"reg_grad3d_l1", Penalty(GradientNorm::kL1)},
      {"reg_grad3d_l2", Penalty(GradientNorm::kL2)},
      {"reg_grad3d_l2_mult", Penalty(GradientNorm::kL2, /*loss_mult=*/0.5)},
  };
}

}  // namespace mir::goldens
