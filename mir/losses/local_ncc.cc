#include "mir/losses/local_ncc.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "mir/losses/arguments.h"
#include "mir/losses/window_correlation.h"
#include "mir/precision/fp32_region.h"

namespace mir::losses {

LocalNcc::LocalNcc(const LocalNccOptions& options) : options_(options) {
  TORCH_CHECK_VALUE(options.window > 0 && options.window % 2 == 1,
                    "LocalNcc: wanted an odd window, got ", options.window);
  TORCH_CHECK_VALUE(options.epsilon >= 1e-8 && options.epsilon <= 1,
                    "LocalNcc: wanted an epsilon from 1e-8 to 1, got ",
                    options.epsilon);
}

at::Tensor LocalNcc::operator()(const at::Tensor& fixed,
                                const at::Tensor& moving) const {
  CheckImagePair("LocalNcc", fixed, moving);
  const precision::Fp32Region region;
  WindowCorrelationOptions options;
  options.loss = "LocalNcc";
  options.window.assign(fixed.dim() - 2, options_.window);
  options.formula.clip_window = true;
  options.formula.per_voxel = true;
  options.formula.smallest_variance = 0;
  options.relative_floor = options_.epsilon;
  options.check_finite = options_.check_finite;
  const at::ScalarType compute = CommonComputeType(fixed, moving);
  return MeanWindowCorrelation(fixed.to(compute), moving.to(compute), options)
      .neg();
}

}  // namespace mir::losses
