#include "mir/losses/factory.h"

#include <ATen/core/Tensor.h>

#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "mir/base/nearest.h"
#include "mir/losses/compat/mutual_information.h"
#include "mir/losses/compat/ncc.h"
#include "mir/losses/compat/presets.h"
#include "mir/losses/correlation_ratio.h"
#include "mir/losses/displacement_energy.h"
#include "mir/losses/gradient_penalty.h"
#include "mir/losses/local_mutual_information.h"
#include "mir/losses/local_ncc.h"
#include "mir/losses/mind_ssc.h"
#include "mir/losses/mse.h"
#include "mir/losses/mutual_information.h"
#include "mir/losses/normalized_gradient_field.h"
#include "mir/losses/pcc.h"
#include "mir/losses/reconstruction.h"
#include "mir/losses/ssim.h"
#include "mir/losses/weight_priors.h"

namespace mir::losses {
namespace {

template <typename Loss>
using Named = std::vector<std::pair<std::string, Loss>>;

LocalNcc NccWith(double sigma, int64_t scales) {
  LocalNccOptions options;
  options.sigma = sigma;
  options.scales = scales;
  return LocalNcc(options);
}

MutualInformation GaussianInformation() {
  MutualInformationOptions options;
  options.kind = ParzenKind::kGaussian;
  return MutualInformation(options);
}

const Named<Similarity>& Similarities() {
  static const auto& similarities = *new Named<Similarity>{
      {"ncc", LocalNcc()},
      {"ncc_gauss", NccWith(/*sigma=*/2, /*scales=*/1)},
      {"ncc_multiscale", NccWith(/*sigma=*/0, /*scales=*/3)},
      {"mi", MutualInformation()},
      {"mi_gauss", GaussianInformation()},
      {"nmi", NormalizedMutualInformation()},
      {"local_mi", LocalMutualInformation()},
      {"corr_ratio", CorrelationRatio()},
      {"local_corr_ratio", LocalCorrelationRatio()},
      {"mind", MindSsc()},
      {"ngf", NormalizedGradientField()},
      {"pcc", Pcc()},
      {"ssim", Ssim()},
      {"mse", Mse()},
      {"l1", L1()},
      {"charbonnier", Charbonnier()},
      {"mir.ncc", compat::Ncc()},
      {"mir.ncc_gauss", compat::NccGauss()},
      {"mir.ncc_mok", compat::NccMok()},
      {"mir.ncc_mok2", compat::NccMok()},
      {"mir.ncc_vxm", compat::NccVxm()},
      {"mir.ncc_vfa", compat::NccVfa()},
      {"mir.ncc_fp16", compat::NccFp16()},
      {"mir.fast_ncc", compat::FastNcc()},
      {"mir.mi", compat::MutualInformation()},
      {"mir.local_mi", compat::LocalMi()},
      {"mir.mattes_mi", compat::MattesMutualInformation()},
      {"mir.nmi", compat::NormalizedMutualInformation()},
      {"mir.corr_ratio", compat::CorrRatio()},
      {"mir.local_corr_ratio", compat::LocalCorrRatio()},
      {"mir.mind", MindSsc()},
      {"mir.ngf", compat::NormalizedGradientFieldLoss()},
      {"mir.pcc", Pcc()},
      {"mir.ssim", compat::Ssim3d()},
      {"mir.comp_recon", compat::CompRecon()},
  };
  return similarities;
}

GradientPenalty PenaltyOf(GradientNorm norm) {
  GradientPenaltyOptions options;
  options.norm = norm;
  return GradientPenalty(options);
}

Regularizer EnergyOf(EnergyKind kind) {
  DisplacementEnergyOptions options;
  options.kind = kind;
  return DisplacementEnergy(options);
}

const Named<Regularizer>& Regularizers() {
  static const auto& regularizers = *new Named<Regularizer>{
      {"l1", PenaltyOf(GradientNorm::kL1)},
      {"l2", PenaltyOf(GradientNorm::kL2)},
      {"tv", PenaltyOf(GradientNorm::kIsotropic)},
      {"bending", EnergyOf(EnergyKind::kBending)},
      {"elastic", EnergyOf(EnergyKind::kLinearElastic)},
      {"mir.grad3d_l1", compat::Grad3d(GradientNorm::kL1)},
      {"mir.grad3d_l2", compat::Grad3d(GradientNorm::kL2)},
      {"mir.grad3d_itv", compat::Grad3dItv()},
      {"mir.bending", compat::DisplacementRegularizer(EnergyKind::kBending)},
      {"mir.gradient_l1",
       compat::DisplacementRegularizer(EnergyKind::kGradientL1)},
      {"mir.gradient_l2",
       compat::DisplacementRegularizer(EnergyKind::kGradientL2)},
  };
  return regularizers;
}

const Named<LocalRegularizer>& LocalRegularizers() {
  static const auto& regularizers = *new Named<LocalRegularizer>{
      {"l1", PenaltyOf(GradientNorm::kL1)},
      {"l2", PenaltyOf(GradientNorm::kL2)},
      {"tv", PenaltyOf(GradientNorm::kIsotropic)},
  };
  return regularizers;
}

template <typename Loss>
std::vector<std::string> NamesOf(const Named<Loss>& losses) {
  std::vector<std::string> names;
  for (const auto& [name, loss] : losses) names.push_back(name);
  return names;
}

template <typename Loss>
absl::StatusOr<Loss> Find(const Named<Loss>& losses, absl::string_view kind,
                          absl::string_view wanted) {
  for (const auto& [name, loss] : losses) {
    if (name == wanted) return loss;
  }
  const std::vector<std::string> names = NamesOf(losses);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown ", kind, " \"", wanted, "\": wanted one of ",
                   absl::StrJoin(names, ", "), DidYouMean(wanted, names)));
}

}  // namespace

absl::StatusOr<Similarity> MakeSimilarity(absl::string_view name) {
  return Find(Similarities(), "similarity", name);
}

std::vector<std::string> SimilarityNames() { return NamesOf(Similarities()); }

absl::StatusOr<Regularizer> MakeRegularizer(absl::string_view name) {
  return Find(Regularizers(), "regularizer", name);
}

std::vector<std::string> RegularizerNames() { return NamesOf(Regularizers()); }

absl::StatusOr<LocalRegularizer> MakeLocalRegularizer(absl::string_view name) {
  return Find(LocalRegularizers(), "regularizer with weights", name);
}

std::vector<std::string> LocalRegularizerNames() {
  return NamesOf(LocalRegularizers());
}

absl::StatusOr<WeightPrior> MakeWeightPrior(absl::string_view name) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(name, absl::MaxSplits(':', 1));
  double number = 0;
  const bool is_number =
      absl::SimpleAtod(parts.second, &number) && std::isfinite(number);
  if (parts.first == "beta" && is_number && number > 1) {
    return WeightPrior([number](const at::Tensor& weights) {
      return LogBeta(weights, /*alpha=*/number);
    });
  }
  if (parts.first == "gaussian" && is_number && number > 0) {
    return WeightPrior([number](const at::Tensor& weights) {
      return LogGaussian(weights, /*inverse_variance=*/number);
    });
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown prior \"", name,
      "\": wanted beta:ALPHA with a number above 1, such as beta:3.35, or "
      "gaussian:INVERSE_VARIANCE with a number above 0"));
}

}  // namespace mir::losses
