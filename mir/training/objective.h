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
};

// What a run minimises:
//
//   similarity_weight * similarity(fixed, moving warped by the displacement)
//   + regularizer_weight * regularizer(regularized field),
//
// where a hypernetwork's first hyperparameter h scales the first term by 1 - h
// and the second by h. Computed in float32 whatever the model ran in.
// Thread-safe.
class Objective {
 public:
  // INVALID_ARGUMENT for a loss that is not known, naming the nearest.
  static absl::StatusOr<Objective> Make(const TrainOptions& options);

  // `fixed` and `moving` [N, 1, ...]; throws c10::Error as the losses do.
  LossTerms operator()(const models::Registration& registration,
                       const at::Tensor& moving, const at::Tensor& fixed) const;

  geometry::WarpConvention warp_convention() const { return convention_; }

 private:
  Objective() = default;

  losses::Similarity similarity_;
  losses::Regularizer regularizer_;
  double similarity_weight_ = 1;
  double regularizer_weight_ = 1;
  geometry::WarpConvention convention_ = geometry::WarpConvention::kExact;
};

}  // namespace mir::training

#endif  // MIR_TRAINING_OBJECTIVE_H_
