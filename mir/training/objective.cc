#include "mir/training/objective.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <vector>

#include "mir/base/status_macros.h"
#include "mir/precision/fp32_region.h"

namespace mir::training {

absl::StatusOr<Objective> Objective::Make(const TrainOptions& options) {
  Objective objective;
  MIR_ASSIGN_OR_RETURN(objective.similarity_,
                       losses::MakeSimilarity(options.similarity));
  MIR_ASSIGN_OR_RETURN(objective.regularizer_,
                       losses::MakeRegularizer(options.regularizer));
  if (!options.prior.empty()) {
    MIR_ASSIGN_OR_RETURN(objective.local_regularizer_,
                         losses::MakeLocalRegularizer(options.regularizer));
    MIR_ASSIGN_OR_RETURN(objective.prior_,
                         losses::MakeWeightPrior(options.prior));
  }
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
  const at::Tensor& weights = registration.weights;
  const bool weighted = prior_ != nullptr;
  TORCH_CHECK_VALUE(
      weights.defined() == weighted,
      weighted ? "the model gives no weights of the regularizer; leave the "
                 "prior (--prior) out"
               : "the model gives weights of the regularizer, which want a "
                 "prior (--prior)");
  const precision::Fp32Region in_float32;
  const at::Tensor moved = geometry::Warp(moving, registration.displacement,
                                          {.convention = convention_});
  const at::Tensor similarity = similarity_(fixed, moved);
  const at::Tensor regularizer =
      weighted ? local_regularizer_(registration.regularized, weights)
               : regularizer_(registration.regularized);
  double similarity_weight = similarity_weight_;
  double regularizer_weight = regularizer_weight_;
  double prior_weight = 1;
  const std::vector<double>& hyperparameters = registration.hyperparameters;
  if (!hyperparameters.empty()) {
    const double share = hyperparameters.back();
    similarity_weight *= 1 - share;
    regularizer_weight *= share;
    prior_weight *= share;
  }
  if (hyperparameters.size() > 1) prior_weight *= hyperparameters.front();
  LossTerms terms;
  terms.total =
      similarity_weight * similarity + regularizer_weight * regularizer;
  terms.similarity = similarity.detach();
  terms.regularizer = regularizer.detach();
  if (weighted) {
    const at::Tensor prior = prior_(weights);
    terms.total = terms.total + prior_weight * prior;
    terms.prior = prior.detach();
  } else {
    terms.prior = at::zeros_like(terms.regularizer);
  }
  return terms;
}

}  // namespace mir::training
