#ifndef MIR_LOSSES_FACTORY_H_
#define MIR_LOSSES_FACTORY_H_

#include <ATen/core/ATen_fwd.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace mir::losses {

// Of a fixed and a moving image; see local_ncc.h for shapes and types.
using Similarity = std::function<at::Tensor(const at::Tensor& fixed,
                                            const at::Tensor& moving)>;

// Of a displacement or velocity; see gradient_penalty.h.
using Regularizer = std::function<at::Tensor(const at::Tensor& displacement)>;

// The similarity losses by the names that command lines take: "ncc" (LocalNcc),
// "mse" (Mse), and MIR's own variants (compat/ncc.h) as "mir." and their name.
// Each has its default options.
//
// Any other name is INVALID_ARGUMENT; the message lists all and suggests the
// nearest.
absl::StatusOr<Similarity> MakeSimilarity(absl::string_view name);
std::vector<std::string> SimilarityNames();

// The regularizers: "l1" and "l2" (GradientPenalty). Errors as above.
absl::StatusOr<Regularizer> MakeRegularizer(absl::string_view name);
std::vector<std::string> RegularizerNames();

}  // namespace mir::losses

#endif  // MIR_LOSSES_FACTORY_H_
