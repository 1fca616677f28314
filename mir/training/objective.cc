#include "mir/training/objective.h"

#include <ATen/TensorOperators.h>

#include "mir/base/status_macros.h"
#include "mir/precision/fp32_region.h"

namespace mir::training {

absl::StatusOr<Objective> Objective::Make(const TrainOptions& options) {
  Objective objective;
  MIR_ASSIGN_OR_RETURN(objective.similarity_,
                       losses::MakeSimilarity(options.similarity));
  MIR_ASSIGN_OR_RETURN(objective.regularizer_,
                       losses::MakeRegularizer(options.regularizer));
  objective.similarity_weight_ = options.similarity_weight;
  objective.regularizer_weight_ = options.regularizer_weight;
  objective.convention_ = options.warp_convention == "mir"
                              ? geometry::WarpConvention::kMirCompatible
                              : geometry::WarpConvention::kExact;
  return objective;
}

LossTerms Objective::operator()(const models::Registration& registration,
                                const at::Tensor& moving,
                                const at::Tensor& fixed) const {
  const precision::Fp32Region in_float32;
  const at::Tensor moved = geometry::Warp(moving, registration.displacement,
                                          {.convention = convention_});
  const at::Tensor similarity = similarity_(fixed, moved);
  const at::Tensor regularizer = regularizer_(registration.regularized);
  double similarity_weight = similarity_weight_;
  double regularizer_weight = regularizer_weight_;
  if (!registration.hyperparameters.empty()) {
    const double share = registration.hyperparameters.front();
    similarity_weight *= 1 - share;
    regularizer_weight *= share;
  }
  return {.total =
              similarity_weight * similarity + regularizer_weight * regularizer,
          .similarity = similarity.detach(),
          .regularizer = regularizer.detach()};
}

}  // namespace mir::training
