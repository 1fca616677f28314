#include "mir/losses/compat/presets.h"

namespace mir::losses::compat {
namespace {

GradIconOptions InverseConsistency(GradientNorm penalty, bool both_dirs) {
  GradIconOptions options;
  options.norm = penalty;
  options.both_directions = both_dirs;
  options.convention = geometry::WarpConvention::kMirCompatible;
  return options;
}

}  // namespace

Dice DiceLoss() {
  DiceOptions options;
  options.skip_absent = false;
  return Dice(options);
}

SparseDice SparseDiceFromIntLabels(int64_t num_classes, int64_t k,
                                   bool include_bg, bool present_only) {
  SparseDiceOptions options;
  options.num_classes = num_classes;
  options.max_classes = k;
  options.include_background = include_bg;
  options.present_only = present_only;
  options.convention = geometry::WarpConvention::kMirCompatible;
  options.dice.skip_absent = false;
  return SparseDice(options);
}

losses::SegmentationLoss DiceSegLoss(std::optional<int64_t> ignore_index,
                                     double eps) {
  SegmentationLossOptions options;
  options.cross_entropy_weight = 0;
  options.ignored_label = ignore_index;
  options.epsilon = eps;
  return losses::SegmentationLoss(options);
}

losses::SegmentationLoss SegmentationLoss(double weight_ce, double weight_dice,
                                          std::optional<int64_t> ignore_index) {
  SegmentationLossOptions options;
  options.cross_entropy_weight = weight_ce;
  options.dice_weight = weight_dice;
  options.ignored_label = ignore_index;
  return losses::SegmentationLoss(options);
}

CompositeReconstruction CompRecon(double charb_weight, double grad_weight,
                                  double ff_weight, double eps, double alpha,
                                  double beta) {
  CompositeReconstructionOptions options;
  options.charbonnier_weight = charb_weight;
  options.gradient_weight = grad_weight;
  options.frequency_weight = ff_weight;
  options.epsilon = eps;
  options.exponent = alpha + beta;
  return CompositeReconstruction(options);
}

Ssim Ssim3d(int64_t window_size) {
  SsimOptions options;
  options.window = window_size;
  options.intensity_range = 1;
  options.clip_window = false;
  return Ssim(options);
}

CorrelationRatio CorrRatio(int64_t bins, double sigma_ratio) {
  CorrelationRatioOptions options;
  options.bins = bins;
  options.sigma = sigma_ratio;
  options.as_mir = true;
  return CorrelationRatio(options);
}

LocalCorrelationRatio LocalCorrRatio(int64_t bins, double sigma_ratio,
                                     int64_t win) {
  LocalCorrelationRatioOptions options;
  options.ratio.bins = bins;
  options.ratio.sigma = sigma_ratio;
  options.ratio.as_mir = true;
  options.window = win;
  return LocalCorrelationRatio(options);
}

LocalMutualInformation LocalMi(double sigma_ratio, double minval, double maxval,
                               int64_t num_bin, int64_t patch_size) {
  LocalMutualInformationOptions options;
  options.bins = num_bin;
  options.sigma = sigma_ratio;
  options.patch = patch_size;
  options.range = {minval, maxval};
  options.as_mir = true;
  return LocalMutualInformation(options);
}

NormalizedGradientField NormalizedGradientFieldLoss(double eps, double eta,
                                                    int64_t smooth_window) {
  NormalizedGradientFieldOptions options;
  options.epsilon = eps;
  options.edge = eta;
  options.smooth_window = smooth_window;
  options.as_mir = true;
  return NormalizedGradientField(options);
}

GradientPenalty Grad3d(GradientNorm penalty) {
  GradientPenaltyOptions options;
  options.norm = penalty;
  return GradientPenalty(options);
}

GradientPenalty Grad3dItv() { return Grad3d(GradientNorm::kIsotropic); }

GradientPenalty LocalGrad3d(GradientNorm penalty) { return Grad3d(penalty); }

DisplacementEnergy DisplacementRegularizer(EnergyKind energy_type) {
  DisplacementEnergyOptions options;
  options.kind = energy_type;
  return DisplacementEnergy(options);
}

GradIcon GradIcon3d(GradientNorm penalty, bool both_dirs) {
  return GradIcon(InverseConsistency(penalty, both_dirs));
}

GradIconExact GradIconExact3d(GradientNorm penalty, bool both_dirs,
                              double share) {
  return GradIconExact(InverseConsistency(penalty, both_dirs), share);
}

}  // namespace mir::losses::compat
