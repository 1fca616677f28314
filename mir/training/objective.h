#ifndef MIR_TRAINING_OBJECTIVE_H_
#define MIR_TRAINING_OBJECTIVE_H_

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "mir/geometry/warp.h"
#include "mir/losses/factory.h"
#include "mir/models/registration_model.h"
#include "mir/training/options.h"

namespace mir::training {

// The loss of a batch and its parts: 0-d tensors in float32 (float64 for
// float64 images). `total` is the weighted sum and carries the graph; the parts
// are unweighted and detached.
struct LossTerms {
  at::Tensor total;
  at::Tensor similarity;
  at::Tensor regularizer;
  at::Tensor prior;  // Zero where there is none.
};

// What a run minimises:
//
//   similarity_weight * similarity(fixed, moving warped by the displacement)
//   + regularizer_weight * regularizer(regularized field)
//
// and, where the model gives weights of the regularizer,
//
//   similarity_weight * similarity(...)
//   + regularizer_weight * regularizer(regularized field, weights)
//   + prior(weights)
//
// (Chen, Wei, Liu et al., "Unsupervised learning of spatially varying
// regularization for diffeomorphic image registration", Medical Image Analysis,
// 2025). A hypernetwork's last hyperparameter h scales the similarity by 1 - h
// and the rest by h; the first of two scales the prior also. Computed in
// float32 whatever the model ran in. Thread-safe.
class Objective {
 public:
  // INVALID_ARGUMENT for a loss that is not known, naming the nearest, and for
  // a regularizer that takes no weights where there is a prior of them.
  static absl::StatusOr<Objective> Make(const TrainOptions& options);

  // `fixed` and `moving` [N, 1, ...]; throws c10::Error as the losses do, and
  // c10::ValueError for weights without a prior or a prior without weights.
  LossTerms operator()(const models::Registration& registration,
                       const at::Tensor& moving, const at::Tensor& fixed) const;

  geometry::WarpConvention warp_convention() const { return convention_; }

 private:
  Objective() = default;

  losses::Similarity similarity_;
  losses::Regularizer regularizer_;
  // Of a model with weights; both or neither.
  losses::LocalRegularizer local_regularizer_;
  losses::WeightPrior prior_;
  double similarity_weight_ = 1;
  double regularizer_weight_ = 1;
  geometry::WarpConvention convention_ = geometry::WarpConvention::kExact;
};

}  // namespace mir::training

#endif  // MIR_TRAINING_OBJECTIVE_H_
