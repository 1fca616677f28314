#ifndef MIR_TOOLS_REGISTER_MEASURE_H_
#define MIR_TOOLS_REGISTER_MEASURE_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "tools/register/register_volumes.h"

namespace mir::tools {

// What metrics.json says of one pair:
//
//   fixed, moving          the files
//   folded                 the share of voxels that fold (metrics::FoldedShare)
//   sd_log_jacobian        metrics::SdLogJacobian; null where a size is below 5
//
// and where both have labels, each also as `..._before` (before registration)
// and, per label, as `..._by_label`:
//
//   dice                   the mean of metrics::Dice
//   hd95_mm                metrics::CompareSurfaces, in mm of the fixed image;
//                          the mean over labels that both have, and null for a
//                          label that only one has
//   missing_labels         how many labels only one has, after registration
//
// A measure that is not a number is null.
nlohmann::json Measure(const VolumePair& pair, const RegisteredVolumes& found);

// metrics.json of a list: `pairs`, what Measure said of each, and the mean of
// each of their measures over the pairs that have it. A mean is null where one
// of them is.
nlohmann::json Summarize(const std::vector<nlohmann::json>& pairs);

}  // namespace mir::tools

#endif  // MIR_TOOLS_REGISTER_MEASURE_H_
