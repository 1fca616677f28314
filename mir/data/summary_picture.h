#ifndef MIR_DATA_SUMMARY_PICTURE_H_
#define MIR_DATA_SUMMARY_PICTURE_H_

#include <ATen/core/ATen_fwd.h>

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace mir::data {

// Draws a registration as a PNG, to be judged at a glance: fixed, moving and
// warped image, the difference to the fixed one before and after, and a grid
// under the displacement. Of a volume it shows the middle slice along the last
// axis, the first axis to the right and the second up.
//
//   fixed, moving, warped  [N, C, ...]   floating, of equal shape; the first
//                                        channel of the first pair is drawn
//   displacement           [N, nd, ...]  in voxels, nd 2 or 3
//
// INVALID_ARGUMENT for other shapes; otherwise the system's reason where the
// file cannot be written. `path` never holds half a file.
absl::Status WriteRegistrationPicture(const std::string& path,
                                      const at::Tensor& fixed,
                                      const at::Tensor& moving,
                                      const at::Tensor& warped,
                                      const at::Tensor& displacement);

// The same, with the losses of a run's steps as a curve below.
absl::Status WriteSummaryPicture(const std::string& path,
                                 const at::Tensor& fixed,
                                 const at::Tensor& moving,
                                 const at::Tensor& warped,
                                 const at::Tensor& displacement,
                                 const std::vector<double>& losses);

}  // namespace mir::data

#endif  // MIR_DATA_SUMMARY_PICTURE_H_
