#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/tensor.h>

#include <vector>

#include "mir/losses/box_sum.h"
#include "mir/losses/compat/mutual_information.h"
#include "mir/losses/compat/ncc.h"
#include "mir/losses/compat/presets.h"
#include "mir/losses/kl_divergence.h"
#include "mir/losses/mind_ssc.h"
#include "mir/losses/pcc.h"
#include "mir/losses/sparse_dice.h"
#include "mir/losses/weight_priors.h"
#include "tests/goldens/handlers.h"

namespace mir::goldens {
namespace {

using ::mir::losses::EnergyKind;
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

// Of two inputs by their names.
template <typename Loss>
Handler Of(const char* first, const char* second, const Loss& loss) {
  return [=](GoldenRun& run) {
    run.Out("loss", loss(run.In(first), run.In(second)));
  };
}

// MIR's `loss_mult` is the loss's weight.
template <typename Loss>
Handler Penalty(const Loss& penalty, double loss_mult = 1) {
  return [=](GoldenRun& run) {
    run.Out("loss", penalty(run.In("y_pred")).mul(loss_mult));
  };
}

template <typename Loss>
Handler WeightedPenalty(const Loss& penalty, double loss_mult = 1) {
  return [=](GoldenRun& run) {
    run.Out("loss", penalty(run.In("y_pred"), run.In("weight")).mul(loss_mult));
  };
}

template <typename Loss>
Handler InverseConsistency(const Loss& loss, double loss_mult = 1) {
  return [=](GoldenRun& run) {
    run.Out("loss",
            loss(run.In("flow_fwd"), run.In("flow_inv")).mul(loss_mult));
  };
}

template <typename Function>
Handler Divergence(const Function& function) {
  return [=](GoldenRun& run) {
    run.Out("loss", function(run.In("mean_p"), run.In("log_sigma_p"),
                             run.In("mean_q"), run.In("log_sigma_q")));
  };
}

Handler Descriptor(int64_t radius) {
  return [=](GoldenRun& run) {
    losses::MindSscOptions options;
    options.radius = radius;
    run.Out("mind", losses::MindSscDescriptor(run.In("img"), options));
  };
}

void SparseDice(GoldenRun& run) {
  const losses::SparseDice loss =
      compat::SparseDiceFromIntLabels(/*num_classes=*/12, /*k=*/10);
  run.Out("loss", loss(run.In("src"), run.In("tgt"), run.In("flow")));
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
      {"fn_k_hot",
       [](GoldenRun& run) {
         run.Out("k_hot", losses::ClassMasks(run.In("y_int"), {2, 5, 1}));
       }},
      {"loss_comp_recon", Of("pred", "target", compat::CompRecon())},
      {"loss_comp_recon_alpha",
       Of("pred", "target",
          compat::CompRecon(/*charb_weight=*/5, /*grad_weight=*/10,
                            /*ff_weight=*/0.3, /*eps=*/1e-3, /*alpha=*/0.5,
                            /*beta=*/1))},
      {"loss_dice", Of("y_pred", "y_true", compat::DiceLoss())},
      {"loss_dice_default36", Of("y_pred", "y_true", compat::DiceLoss())},
      {"loss_dice_seg", Of("logits", "target", compat::DiceSegLoss())},
      {"loss_dice_seg_ignore",
       Of("logits", "target", compat::DiceSegLoss(/*ignore_index=*/0))},
      {"loss_dice_soft", Of("y_pred", "y_true", compat::DiceLoss())},
      {"loss_pcc", IAndJ(losses::Pcc())},
      {"loss_pcc_b2", IAndJ(losses::Pcc())},
      {"loss_segmentation", Of("logits", "target", compat::SegmentationLoss())},
      {"loss_segmentation_weights",
       Of("logits", "target",
          compat::SegmentationLoss(/*weight_ce=*/0.3, /*weight_dice=*/2,
                                   /*ignore_index=*/0))},
      {"loss_ncc_gauss", TrueAndPred(compat::NccGauss())},
      {"loss_ncc_gauss_win5", TrueAndPred(compat::NccGauss(5))},
      {"loss_corr_ratio", TrueAndPred(compat::CorrRatio())},
      {"loss_corr_ratio_bins16", TrueAndPred(compat::CorrRatio(16, 2))},
      {"loss_local_corr_ratio", TrueAndPred(compat::LocalCorrRatio())},
      {"loss_local_corr_ratio_win5",
       TrueAndPred(compat::LocalCorrRatio(16, 1, 5))},
      {"loss_local_mi", TrueAndPred(compat::LocalMi())},
      {"loss_local_mi_patch7", TrueAndPred(compat::LocalMi(1, 0, 1, 16, 7))},
      {"loss_mattes_mi", TrueAndPred(compat::MattesMutualInformation())},
      {"loss_mattes_mi_bins16",
       TrueAndPred(compat::MattesMutualInformation(16))},
      {"loss_mi", TrueAndPred(compat::MutualInformation())},
      {"loss_mi_b2", TrueAndPred(compat::MutualInformation())},
      {"loss_mi_bins16", TrueAndPred(compat::MutualInformation(0.5, 0, 1, 16))},
      {"loss_nmi", TrueAndPred(compat::NormalizedMutualInformation())},
      {"loss_nmi_bins20",
       TrueAndPred(compat::NormalizedMutualInformation(20, 0, 1, 1e-5))},
      {"geo_mindssc_convex", Descriptor(/*radius=*/1)},
      {"geo_mindssc_mind_loss", Descriptor(/*radius=*/2)},
      {"loss_mind", Of("y_pred", "y_true", losses::MindSsc())},
      {"loss_ngf", TrueAndPred(compat::NormalizedGradientFieldLoss())},
      {"loss_ngf_2d", TrueAndPred(compat::NormalizedGradientFieldLoss())},
      {"loss_ngf_eta", TrueAndPred(compat::NormalizedGradientFieldLoss(
                           /*eps=*/1e-6, /*eta=*/0.1, /*smooth_window=*/1))},
      {"loss_sparse_dice", SparseDice},
      {"loss_ssim2d",
       [](GoldenRun& run) {
         run.Out("loss", 1 - compat::Ssim3d()(run.In("img1"), run.In("img2")));
       }},
      {"loss_ssim3d", Of("img1", "img2", compat::Ssim3d())},
      {"loss_ssim3d_win7_map",
       [](GoldenRun& run) {
         run.Out("loss", 1 - compat::Ssim3d(7)
                                 .Map(run.In("img1"), run.In("img2"))
                                 .mean({1, 2, 3})
                                 .to(at::kFloat));
       }},
      {"fn_gaussian_windows",
       [](GoldenRun& run) {
         const auto taps = [](int64_t window) {
           return at::tensor(losses::GaussianTaps(window, 1.5), at::kFloat);
         };
         const at::Tensor wide = taps(11);
         run.Out("gaussian", wide);
         run.Out("window2d",
                 at::einsum("i,j->ij", {wide, wide}).expand({2, 1, 11, 11}));
         const at::Tensor narrow = taps(9);
         run.Out("window3d", at::einsum("i,j,k->ijk", {narrow, narrow, narrow})
                                 .view({1, 1, 9, 9, 9}));
       }},
      {"reg_disp_bending",
       Penalty(compat::DisplacementRegularizer(EnergyKind::kBending))},
      {"reg_disp_grad_l1",
       Penalty(compat::DisplacementRegularizer(EnergyKind::kGradientL1))},
      {"reg_disp_grad_l2",
       Penalty(compat::DisplacementRegularizer(EnergyKind::kGradientL2))},
      {"reg_grad2d_l1", Penalty(compat::Grad3d())},
      {"reg_grad2d_l2_mult",
       Penalty(compat::Grad3d(GradientNorm::kL2), /*loss_mult=*/2)},
      {"reg_grad3d_itv", Penalty(compat::Grad3dItv())},
      {"reg_grad3d_l1", Penalty(compat::Grad3d())},
      {"reg_grad3d_l2", Penalty(compat::Grad3d(GradientNorm::kL2))},
      {"reg_grad3d_l2_mult",
       Penalty(compat::Grad3d(GradientNorm::kL2), /*loss_mult=*/0.5)},
      {"reg_gradicon_exact_l1_both",
       InverseConsistency(compat::GradIconExact3d(
           GradientNorm::kL1, /*both_dirs=*/true, /*share=*/1))},
      {"reg_gradicon_exact_l2",
       InverseConsistency(compat::GradIconExact3d(
           GradientNorm::kL2, /*both_dirs=*/false, /*share=*/1))},
      {"reg_gradicon_l1_both",
       InverseConsistency(
           compat::GradIcon3d(GradientNorm::kL1, /*both_dirs=*/true),
           /*loss_mult=*/3)},
      {"reg_gradicon_l2", InverseConsistency(compat::GradIcon3d())},
      {"reg_kl", Divergence(losses::KlDivergence)},
      {"reg_kl_multivariate", Divergence(losses::MultivariateKlDivergence)},
      {"reg_local_grad3d_l1", WeightedPenalty(compat::LocalGrad3d())},
      {"reg_local_grad3d_l2",
       WeightedPenalty(compat::LocalGrad3d(GradientNorm::kL2),
                       /*loss_mult=*/2)},
      {"reg_log_beta",
       [](GoldenRun& run) {
         run.Out("loss", losses::LogBeta(run.In("weights"), 1.3));
       }},
      {"reg_log_gaussian",
       [](GoldenRun& run) {
         run.Out("loss", losses::LogGaussian(run.In("weights"), 0.7));
       }},
      {"reg_log_gaussian_bond",
       [](GoldenRun& run) {
         run.Out("loss", losses::LogGaussian(run.In("weights"), 0.7,
                                             /*largest=*/1, /*epsilon=*/0.1));
       }},
  };
}

}  // namespace mir::goldens
