#ifndef MIR_TOOLS_CHECKPOINT_DIFF_H_
#define MIR_TOOLS_CHECKPOINT_DIFF_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/checkpoint/weights_file.h"

namespace mir::tools {

// How the weights of `b` differ from those of `a`: names in one alone, other
// shapes, other values (how many elements, the largest difference) and equal
// values of other bits (another dtype, another zero). Then the files' other
// entries that are not the same. `same` tells whether nothing differs. Errors
// name the file.
absl::StatusOr<Report> Diff(const WeightsFile& a, const WeightsFile& b);

// The same in lines, as `diff` marks them.
std::string DiffText(const Report& report);

}  // namespace mir::tools

#endif  // MIR_TOOLS_CHECKPOINT_DIFF_H_
