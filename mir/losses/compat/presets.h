#ifndef MIR_LOSSES_COMPAT_PRESETS_H_
#define MIR_LOSSES_COMPAT_PRESETS_H_

#include <cstdint>
#include <optional>

#include "mir/losses/correlation_ratio.h"
#include "mir/losses/dice.h"
#include "mir/losses/displacement_energy.h"
#include "mir/losses/gradicon.h"
#include "mir/losses/gradient_penalty.h"
#include "mir/losses/local_mutual_information.h"
#include "mir/losses/normalized_gradient_field.h"
#include "mir/losses/reconstruction.h"
#include "mir/losses/segmentation_loss.h"
#include "mir/losses/sparse_dice.h"
#include "mir/losses/ssim.h"

// The losses and regularizers of the Python package MIR
// (github.com/junyuchen245/MIR) that are ours with other options, by MIR's
// names and with its defaults. What each computes stands with its class. MIR's
// `loss_mult` is the loss's weight. PCC, MIND_loss, logBeta, logGaussian,
// KL_divergence and MultiVariateKL_divergence are Pcc, MindSsc, LogBeta,
// LogGaussian, KlDivergence and MultivariateKlDivergence.
namespace mir::losses::compat {

// image_similarity/Dice.py. A class that is absent from both maps counts as a
// Dice of 0.
Dice DiceLoss();
SparseDice SparseDiceFromIntLabels(int64_t num_classes, int64_t k = 16,
                                   bool include_bg = false,
                                   bool present_only = true);

// image_similarity/Segmentation_Overlap.py
losses::SegmentationLoss DiceSegLoss(
    std::optional<int64_t> ignore_index = std::nullopt, double eps = 1e-6);
losses::SegmentationLoss SegmentationLoss(
    double weight_ce = 1, double weight_dice = 1,
    std::optional<int64_t> ignore_index = std::nullopt);

// image_similarity/CompositeRecon.py
CompositeReconstruction CompRecon(double charb_weight = 100,
                                  double grad_weight = 10, double ff_weight = 1,
                                  double eps = 1e-3, double alpha = 1,
                                  double beta = 1);

// image_similarity/SSIM.py: SSIM3D; SSIM2D is one minus it. With
// size_average=False MIR averages over all axes but the first and the last: the
// mean of Ssim::Map over these.
Ssim Ssim3d(int64_t window_size = 11);

// image_similarity/Correlation_Ratio.py
CorrelationRatio CorrRatio(int64_t bins = 32, double sigma_ratio = 1);
LocalCorrelationRatio LocalCorrRatio(int64_t bins = 32, double sigma_ratio = 1,
                                     int64_t win = 9);

// image_similarity/Mutual_Information.py: localMutualInformation
LocalMutualInformation LocalMi(double sigma_ratio = 1, double minval = 0,
                               double maxval = 1, int64_t num_bin = 32,
                               int64_t patch_size = 5);

// image_similarity/NGF.py
NormalizedGradientField NormalizedGradientFieldLoss(double eps = 1e-6,
                                                    double eta = 0.01,
                                                    int64_t smooth_window = 3);

// deformation_regularizer/GlobalRegularizers.py and, with a weight map,
// LocalRegularizers.py. In 2-D these are Grad2D.
GradientPenalty Grad3d(GradientNorm penalty = GradientNorm::kL1);
GradientPenalty Grad3dItv();
GradientPenalty LocalGrad3d(GradientNorm penalty = GradientNorm::kL1);
DisplacementEnergy DisplacementRegularizer(EnergyKind energy_type);
GradIcon GradIcon3d(GradientNorm penalty = GradientNorm::kL2,
                    bool both_dirs = false);
// MIR looks at an eighth of the voxels.
GradIconExact GradIconExact3d(GradientNorm penalty = GradientNorm::kL2,
                              bool both_dirs = false, double share = 0.125);

}  // namespace mir::losses::compat

#endif  // MIR_LOSSES_COMPAT_PRESETS_H_
