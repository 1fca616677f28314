#ifndef MIR_TOOLS_CHECKPOINT_INSPECT_H_
#define MIR_TOOLS_CHECKPOINT_INSPECT_H_

#include <string>

#include "absl/status/statusor.h"
#include "mir/checkpoint/read_options.h"
#include "tools/checkpoint/weights_file.h"

namespace mir::tools {

// What a checkpoint holds: of each tensor of its weights key, dtype, shape,
// size, smallest and largest finite value and how many are not finite; totals;
// its other entries. A file that holds no weights is listed too: all tensors,
// wherever they stand. Errors carry exit code 12.
absl::StatusOr<Report> Inspect(const std::string& path,
                               const checkpoint::ReadOptions& options);

// The same as a table.
std::string InspectText(const Report& report);

}  // namespace mir::tools

#endif  // MIR_TOOLS_CHECKPOINT_INSPECT_H_
