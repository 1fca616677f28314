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

// Of a displacement or velocity, and how strongly it is penalised at each
// voxel; see gradient_penalty.h.
using LocalRegularizer = std::function<at::Tensor(
    const at::Tensor& displacement, const at::Tensor& weights)>;

// Of such weights; see weight_priors.h.
using WeightPrior = std::function<at::Tensor(const at::Tensor& weights)>;

// The similarity losses by the names that command lines take, each with its
// default options:
//
//   ncc, ncc_gauss (a Gaussian window, sigma 2), ncc_multiscale (3 scales)
//   mi, mi_gauss (Gaussian Parzen windows), nmi, local_mi
//   corr_ratio, local_corr_ratio, mind, ngf, pcc, ssim, mse, l1, charbonnier
//
// and MIR's own variants (compat/) as "mir." and their name.
//
// Any other name is INVALID_ARGUMENT; the message lists all and suggests the
// nearest.
absl::StatusOr<Similarity> MakeSimilarity(absl::string_view name);
std::vector<std::string> SimilarityNames();

// The regularizers: "l1", "l2" and "tv" (GradientPenalty), "bending" and
// "elastic" (DisplacementEnergy), and MIR's, "mir.grad3d_l1", "mir.grad3d_l2",
// "mir.grad3d_itv", "mir.bending", "mir.gradient_l1", "mir.gradient_l2". Errors
// as above.
absl::StatusOr<Regularizer> MakeRegularizer(absl::string_view name);
std::vector<std::string> RegularizerNames();

// Those that take weights: "l1", "l2" (MIR's LocalGrad3d) and "tv". Errors as
// above.
absl::StatusOr<LocalRegularizer> MakeLocalRegularizer(absl::string_view name);
std::vector<std::string> LocalRegularizerNames();

// "beta:ALPHA", LogBeta with ALPHA above 1, or "gaussian:INVERSE_VARIANCE",
// LogGaussian with a positive number. INVALID_ARGUMENT for anything else.
absl::StatusOr<WeightPrior> MakeWeightPrior(absl::string_view name);

}  // namespace mir::losses

#endif  // MIR_LOSSES_FACTORY_H_
